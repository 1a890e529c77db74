//! Files that only their owner may read, directories that are on the disk, and whether a name still stands for a file.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Lets only its owner read the file, if it is created. Elsewhere than on Unix a file has the rights of its directory.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Opens a file to append to it, or creates one that only its owner may read, as [`private`] says.
///
/// # Errors
/// The file cannot be written.
pub fn append_to(path: impl AsRef<Path>) -> io::Result<File> {
    private(OpenOptions::new().create(true).append(true)).open(path)
}

/// Creates a directory that only its owner may enter, and those above it. Elsewhere than on Unix it has the rights of the
/// directory in which it is made.
///
/// # Errors
/// The directory cannot be created.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// As [`create_private_directory`]; waits until all directories that were created are on the disk, as far as this process may
/// read those above them.
///
/// # Errors
/// The directory cannot be created, or a disk has failed.
pub fn create_synced_directory(path: &Path) -> io::Result<()> {
    let is_missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
    let missing = path.ancestors().take_while(is_missing).count();
    create_private_directory(path)?;
    sync_above(path, missing)
}

/// Waits until the path of a directory is on the disk, up to so many levels above it, as far as this process may read these.
///
/// # Errors
/// A disk has failed.
pub fn sync_above(path: &Path, levels: usize) -> io::Result<()> {
    let sync = |above| match sync_directory(above) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    };
    path.ancestors().skip(1).take(levels).try_for_each(sync)
}

/// Lets those read a new file who may read `known`, unless all may. Elsewhere than on Unix it has the rights of its
/// directory.
///
/// # Errors
/// The rights cannot be set.
#[cfg(unix)]
pub fn share_as(file: &File, known: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(known).map(|known| known.permissions().mode() & 0o777);
    let mode = mode.ok().filter(|mode| mode & 0o007 == 0).unwrap_or(0o600);
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

/// As on Unix, where files have rights of their own.
///
/// # Errors
/// None on this system.
#[cfg(not(unix))]
pub fn share_as(_: &File, _: &Path) -> io::Result<()> {
    Ok(())
}

/// Waits until what was created, renamed and removed in a directory is on the disk. Windows keeps a log of that itself, and
/// syncs no directories.
///
/// # Errors
/// The directory cannot be opened, or its disk has failed.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    if cfg!(windows) { path.metadata().map(drop) } else { File::open(path)?.sync_all() }
}

/// Opens a file to sync what other processes have written to it. Windows wants the right to write for that.
///
/// # Errors
/// The file cannot be opened.
pub fn open_to_sync(path: &Path) -> io::Result<File> {
    if cfg!(windows) { OpenOptions::new().write(true).open(path) } else { File::open(path) }
}

/// Whether the name stands for this file. What cannot be known counts as true.
pub fn is_at(path: &Path, file: &File) -> bool {
    match is_same(path, file) {
        Ok(is_same) => is_same,
        Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    }
}

#[cfg(unix)]
fn is_same(path: &Path, file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (found, file) = (std::fs::metadata(path)?, file.metadata()?);
    Ok((found.dev(), found.ino()) == (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn is_same(path: &Path, file: &File) -> io::Result<bool> {
    use same_file::Handle;
    Ok(Handle::from_path(path)? == Handle::from_file(file.try_clone()?)?)
}
