-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION pipeann_servers UPDATE" to load this file. \quit

-- The extension has no objects.
