//! The marks in the directory of a journal that say where its locks are: files that a move puts there.
//!
//! Owns    the files `moved`, `exporting` and `exported`, and which of them keep a server from starting.
//! Rule    a mark is written under another name, synced, renamed, and its directory is synced: it is whole or not there, and
//!         it survives a loss of power once the call returns.

use std::fmt::Debug;
use std::io;

use crate::journal::item;

/// The directory of a journal, one file operation at a time. Its lock file is not one of its files.
pub trait Folder: Debug {
    /// The names of all files.
    ///
    /// # Errors
    /// The system's, as for all of these.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The text of a file; `None`: there is none of that name.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, name: &str) -> io::Result<Option<String>>;

    /// Puts this text into a file, whatever was in it.
    ///
    /// # Errors
    /// The system's.
    fn write(&self, name: &str, text: &str) -> io::Result<()>;

    /// Waits until the bytes of a file are on the disk.
    ///
    /// # Errors
    /// The system's.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name. A file that had this name is gone.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Waits until the names of the files are on the disk.
    ///
    /// # Errors
    /// The system's.
    fn sync_directory(&self) -> io::Result<()>;
}

/// What the directory says of its locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mark {
    /// No move has left anything here.
    Absent,
    /// An export to here has ended; its id.
    Exported([u8; 20]),
    /// An export to here has begun; its id.
    Exporting([u8; 20]),
    /// The locks are in the cluster with this id, or an import has begun to end there.
    Moved([u8; 20]),
}

/// The file that says that the locks are in a cluster.
pub const MOVED: &str = "moved";
/// The file that says that an export to here has not ended.
pub const EXPORTING: &str = "exporting";
/// The name of that file once the export has ended.
const EXPORTED: &str = "exported";
/// A mark that is not whole yet.
const DRAFT: &str = "mark.new";

/// Why no server and no node starts on a directory with the file [`EXPORTING`].
pub const UNFINISHED: &str = "an export to here has not ended: run 'redlatch cluster export' again";
/// Why no server starts on a directory with the file [`MOVED`].
const GONE: &str = "its locks were moved to a cluster, by 'redlatch cluster import': if that was interrupted, run \
                    it again";

/// Why no server starts on a directory, if that is so. `has` tells whether the directory has a file of that name.
pub fn refusal(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    [(MOVED, GONE), (EXPORTING, UNFINISHED)].into_iter().find(|(name, _)| has(name)).map(|(_, why)| why)
}

impl Mark {
    /// What this directory says.
    ///
    /// # Errors
    /// The system's; or a mark has another text than this program writes.
    pub fn of(folder: &dyn Folder) -> io::Result<Self> {
        for name in [MOVED, EXPORTING, EXPORTED] {
            let Some(text) = folder.read(name)? else { continue };
            let id = text.strip_prefix("id ").and_then(|id| item::parse_id(id.trim_end()));
            let id = id.ok_or_else(|| {
                io::Error::other(format!("the file {name} is of another version: {text:?}"))
            })?;
            return Ok(match name {
                MOVED => Self::Moved(id),
                EXPORTING => Self::Exporting(id),
                _ => Self::Exported(id),
            });
        }
        Ok(Self::Absent)
    }

    /// Whether nothing but the draft of a mark is in this directory.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn is_alone_in(folder: &dyn Folder) -> io::Result<bool> {
        Ok(folder.names()?.iter().all(|name| name == DRAFT))
    }

    /// Puts the mark.
    ///
    /// # Errors
    /// The system's.
    pub fn put(self, folder: &dyn Folder) -> io::Result<()> {
        let (name, id) = match self {
            Self::Absent => return Ok(()),
            Self::Exported(id) => (EXPORTED, id),
            Self::Exporting(id) => (EXPORTING, id),
            Self::Moved(id) => (MOVED, id),
        };
        folder.write(DRAFT, &format!("id {}\n", item::id_text(&id)))?;
        folder.sync(DRAFT)?;
        folder.rename(DRAFT, name)?;
        folder.sync_directory()
    }

    /// Removes all files beside the mark of an export that has begun.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn clear_beside(folder: &dyn Folder) -> io::Result<()> {
        folder.names()?.iter().filter(|name| *name != EXPORTING).try_for_each(|name| folder.remove(name))
    }

    /// The export to here has ended: its mark no longer keeps a server from starting.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn end_export(folder: &dyn Folder) -> io::Result<()> {
        if folder.read(EXPORTING)?.is_some() {
            folder.rename(EXPORTING, EXPORTED)?;
        }
        folder.sync_directory()
    }
}
