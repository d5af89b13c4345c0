-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pipeann_servers CASCADE" to load this file. \quit

-- All that the extension does is done by the library's planner hooks, which need no
-- objects. It is loaded here so that this session has them, and an extension whose
-- library cannot be loaded is not created. Other sessions have them if the library is
-- in shared_preload_libraries or session_preload_libraries.
LOAD 'MODULE_PATHNAME';
