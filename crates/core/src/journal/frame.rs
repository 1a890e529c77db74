//! Frames: what one write appends to a journal file.
//!
//! Owns    the first line of a file, with the version of the format, and the frames behind it: the length of the body, the
//!         CRC-32C of these four bytes and that of the body, little endian, then the body.
//! Rule    a frame counts as a whole or not at all. Reading costs time and memory in proportion to the bytes that are there,
//!         whatever a length says.

use std::io::{self, Read};

use bytes::Bytes;

/// The version of the format that this program writes, and the newest that it reads.
pub(crate) const VERSION: u32 = 4;
/// Bytes before the body of a frame.
const HEADER_BYTES: usize = 12;
/// The beginning of the first line of a file. The version follows.
const FIRST_LINE: &str = "redlatch journal ";
/// Bytes of a first line at most.
const FIRST_LINE_BYTES_MAX: usize = 64;

/// The first line of a new file.
pub fn first_line() -> Vec<u8> {
    format!("{FIRST_LINE}{VERSION}\n").into_bytes()
}

/// Makes a frame of `buffer`, whose body begins at [`body_start`].
///
/// # Errors
/// The body is longer than a frame can be.
pub fn seal(buffer: &mut [u8]) -> io::Result<()> {
    let (header, body) = buffer.split_at_mut(HEADER_BYTES);
    let len = u32::try_from(body.len()).map_err(|_| io::Error::other("more than 4 GiB in one write"))?;
    header.copy_from_slice(&header_of(len, body));
    Ok(())
}

fn header_of(len: u32, body: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let words = [len, crc32c::crc32c(&len.to_le_bytes()), crc32c::crc32c(body)];
    header.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    header
}

/// Leaves room for the header at the start of an empty buffer.
pub fn body_start(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.resize(HEADER_BYTES, 0);
}

/// Whether the buffer has no body yet.
pub fn is_empty(buffer: &[u8]) -> bool {
    buffer.len() <= HEADER_BYTES
}

/// The body of a frame that is being made.
pub fn body(buffer: &[u8]) -> &[u8] {
    buffer.get(HEADER_BYTES..).unwrap_or_default()
}

/// The frames of a file.
#[derive(Debug)]
pub struct Frames<R> {
    pub(super) from: R,
    /// Bytes of the file up to the last frame that was read as a whole.
    pub bytes: u64,
}

/// What comes next in a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Next {
    /// The body of a frame.
    Frame(Bytes),
    /// The file ends behind the last frame.
    End,
    /// The file ends inside a frame.
    Cut,
    /// What comes next was not written like this.
    Damaged,
}

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Its version is newer than that of this program.
    #[error("is a journal of version {0}, and this program reads versions up to {VERSION}")]
    Newer(u32),
    /// An earlier program has written what this one cannot keep.
    #[error("holds {0}, which this program no longer supports")]
    Removed(&'static str),
    /// It is no journal.
    #[error("is not a journal of redlatch")]
    Foreign,
    /// It belongs to another server.
    #[error("belongs to another server")]
    OtherServer,
    /// The system cannot read it.
    #[error("cannot be read: {0}")]
    System(#[from] io::Error),
}

impl<R: Read> Frames<R> {
    /// Reads the first line of a file. `None`: the file ends before its first line does.
    ///
    /// # Errors
    /// It is of a newer version, or no journal.
    pub fn open(mut from: R) -> Result<Option<Self>, Unreadable> {
        Ok(read_first_line(&mut from)?.map(|bytes| Self { from, bytes }))
    }

    /// Reads the next frame. After anything else than a frame, nothing more can be read.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&mut self) -> io::Result<Next> {
        let mut header = [0; HEADER_BYTES];
        match fill(&mut self.from, &mut header)? {
            0 => return Ok(Next::End),
            HEADER_BYTES => {}
            _ => return Ok(Next::Cut),
        }
        let &[l0, l1, l2, l3, ..] = &header;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        // A file that has grown without its data being written ends with zeros, whose checksum is zero.
        if header[..8] != header_of(len, &[])[..8] || len == 0 {
            return Ok(Next::Damaged);
        }
        let mut body = Vec::new();
        // Memory is taken as bytes arrive, because the length may be anything.
        let read = Read::by_ref(&mut self.from).take(len.into()).read_to_end(&mut body)?;
        if (read as u64) < u64::from(len) {
            return Ok(Next::Cut);
        }
        if header != header_of(len, &body) {
            return Ok(Next::Damaged);
        }
        self.bytes += HEADER_BYTES as u64 + u64::from(len);
        Ok(Next::Frame(body.into()))
    }
}

impl<R: Read> Frames<R> {
    /// Reads all that is left, and gives the bodies of the frames that are in it, wherever they begin.
    ///
    /// # Errors
    /// The system's.
    pub fn search(&mut self, mut found: impl FnMut(Bytes)) -> io::Result<()> {
        let mut rest = Vec::new();
        self.from.read_to_end(&mut rest)?;
        let (rest, mut at) = (Bytes::from(rest), 0);
        while let Some((header, bodies)) = rest.get(at..).and_then(<[u8]>::split_first_chunk::<HEADER_BYTES>)
        {
            let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let body =
                bodies.get(..len as usize).filter(|_| len > 0 && header[..8] == header_of(len, &[])[..8]);
            if let Some(body) = body.filter(|body| *header == header_of(len, body)) {
                found(rest.slice_ref(body));
            }
            at += body.map_or(1, |body| HEADER_BYTES + body.len());
        }
        Ok(())
    }
}

/// Reads the first line of a file, and returns its bytes. `None`: the file ends before its first line does.
///
/// # Errors
/// It is of a newer version, or no journal.
pub(super) fn read_first_line(from: &mut impl Read) -> Result<Option<u64>, Unreadable> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        if from.read(&mut byte)? == 0 {
            let is_begun = first_line().starts_with(&line);
            return if is_begun { Ok(None) } else { Err(Unreadable::Foreign) };
        }
        // A file that has grown without its data being written has zeros.
        if byte[0] == 0 && first_line().starts_with(&line) {
            return Ok(None);
        }
        line.push(byte[0]);
        if line.len() > FIRST_LINE_BYTES_MAX {
            return Err(Unreadable::Foreign);
        }
    }
    let text = std::str::from_utf8(&line).unwrap_or_default();
    let version = text.strip_prefix(FIRST_LINE).and_then(|rest| rest.trim_end().parse().ok());
    match version {
        Some(1..=VERSION) => Ok(Some(line.len() as u64)),
        Some(version) if version > VERSION => Err(Unreadable::Newer(version)),
        _ => Err(Unreadable::Foreign),
    }
}

/// Reads until the buffer is full or the file ends. Returns the bytes read.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &[u8]) -> Vec<u8> {
        let mut buffer = Vec::new();
        body_start(&mut buffer);
        buffer.extend_from_slice(body);
        seal(&mut buffer).unwrap();
        buffer
    }

    fn file(bodies: &[&[u8]]) -> Vec<u8> {
        bodies.iter().fold(first_line(), |file, body| [file, frame(body)].concat())
    }

    fn read(file: &[u8]) -> (Vec<Bytes>, Next) {
        let mut frames = Frames::open(file).unwrap().unwrap();
        let mut bodies = Vec::new();
        loop {
            match frames.read().unwrap() {
                Next::Frame(body) => bodies.push(body),
                end => return (bodies, end),
            }
        }
    }

    #[test]
    fn frames_come_back() {
        let bodies: [&[u8]; 3] = [b"one", &[0; 100_000], b"\n"];
        let (found, end) = read(&file(&bodies));
        assert_eq!((found, end), (bodies.map(Bytes::copy_from_slice).to_vec(), Next::End));
    }

    #[test]
    fn a_file_that_is_cut_has_the_frames_before_the_cut() {
        let whole = file(&[b"one", b"three"]);
        let first = first_line().len();
        for len in first..whole.len() {
            let (found, end) = read(&whole[..len]);
            let expected = usize::from(len >= first + 15);
            let is_end = len == first || len == first + 15;
            assert_eq!((found.len(), end), (expected, if is_end { Next::End } else { Next::Cut }), "{len}");
        }
        for len in 0..first {
            assert!(Frames::open(&whole[..len]).unwrap().is_none(), "{len}");
        }
    }

    #[test]
    fn a_changed_byte_ends_the_reading() {
        let whole = file(&[b"one", b"three"]);
        for at in first_line().len()..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x40;
            let (found, end) = read(&changed);
            assert_eq!(found.len(), usize::from(at >= first_line().len() + 15), "{at}");
            assert_eq!(end, Next::Damaged, "{at}");
        }
        assert_eq!(read(&[first_line(), vec![0; 4096]].concat()), (Vec::new(), Next::Damaged));
    }

    #[test]
    fn frames_behind_a_hole_are_found_wherever_they_begin() {
        let whole = file(&[b"one", b"two", &[7; 300], b"four"]);
        for hole in 1..40 {
            let mut changed = whole.clone();
            let start = first_line().len();
            changed[start..start + hole].fill(0);
            let mut frames = Frames::open(&changed[..]).unwrap().unwrap();
            assert_eq!(frames.read().unwrap(), Next::Damaged);
            let mut lens = Vec::new();
            frames.search(|body| lens.push(body.len())).unwrap();
            let expected = [3, 3, 300, 4].into_iter().skip(if hole > 15 { 2 } else { 1 });
            assert!(hole > 30 || lens == expected.collect::<Vec<_>>(), "{hole}: {lens:?}");
            assert!(lens.ends_with(&[4]), "{hole}: {lens:?}");
        }
    }

    #[test]
    fn the_frames_of_older_versions_are_read() {
        let newest = file(&[b"one", b"two"]);
        for version in 1..=VERSION {
            let older =
                [format!("{FIRST_LINE}{version}\n").as_bytes(), &newest[first_line().len()..]].concat();
            assert_eq!(read(&older), (vec!["one".into(), "two".into()], Next::End), "{version}");
        }
    }

    #[test]
    fn other_files_and_newer_versions_are_refused() {
        let refused = |text: &str| Frames::open(text.as_bytes()).unwrap_err().to_string();
        let newer = "is a journal of version 5, and this program reads versions up to 4";
        assert_eq!(refused("redlatch journal 5\nwhatever"), newer);
        for foreign in ["REDIS0009", "redlatch journal 0\n", "redlatch journal x\n", &"x".repeat(1000)] {
            assert_eq!(refused(foreign), "is not a journal of redlatch", "{foreign}");
        }
    }
}
