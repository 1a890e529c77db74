//! Items: what the body of a frame lists.
//!
//! Owns    [`Item`] and its bytes.
//! Rule    decoding is total: any bytes give items or a [`DecodeError`].

use bytes::{Buf, Bytes};
use redlatch_proto::clock::LockTime;

use super::codec::{self, Damaged, DecodeError};
use super::{Mode, Mutation, Record};
use crate::types::Seed;

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// The first item of every file.
    Opened(Opened),
    /// What one command, script or transaction has changed.
    Record {
        /// The instant at which it was decided.
        now: LockTime,
        /// The effects, in order.
        mutations: Vec<Mutation>,
    },
    /// Until when locks may be held.
    Horizon(Horizon),
    /// The libraries of functions from here on, as FUNCTION DUMP gives them.
    Functions(Bytes),
    /// Every key that existed at the start of the file has been copied to it: the files before it are not needed.
    Copied,
    /// The server has ended in good order. The horizon is the end of the last lease.
    Stopped(Horizon),
    /// A sync has failed: what was written since the last one may be lost.
    Tainted,
    /// Where the file is stored. Journals before version 3 do not say it.
    Volume(Volume),
}

/// How a file begins.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Opened {
    /// The id of the server.
    pub server: [u8; 20],
    /// The number of the file.
    pub number: u64,
    /// The number of the file that it goes on from; zero: it is the first. Files between the two could not be read.
    pub previous: u64,
    /// Bytes of that file.
    pub previous_bytes: u64,
    /// The boot of the machine; `None`: the system does not tell.
    pub boot: Option<[u8; 16]>,
    /// When replies leave. In memory mode the journal has horizons only. With [`Mode::Always`], what a loss of power takes
    /// was promised to nobody.
    pub mode: Mode,
}

/// What identifies the storage of a journal within one boot. `None`: the system does not say.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Volume {
    /// The number of the block device.
    pub device: Option<u64>,
    /// The sequence number of the disk. A disk that is attached again has another one.
    pub disk: Option<u64>,
    /// The file system on that device. One that is mounted again has another number.
    pub file_system: Option<u64>,
    /// The root mount that the server sees. Another mount namespace has another one.
    pub root_mount: Option<u64>,
    /// The mount of the journal. One that is mounted again has another number, and each mount namespace has its own.
    pub mount: Option<u64>,
}

impl Volume {
    /// What has changed since `before`, if that says that the storage was attached or mounted again in between. An unknown
    /// number says nothing, and neither does the mount of another mount namespace.
    pub(crate) fn change_since(&self, before: &Self) -> Option<&'static str> {
        let differs = |then: Option<u64>, now: Option<u64>| then.is_some() && now.is_some() && then != now;
        let is_same_namespace = self.root_mount.is_some() && self.root_mount == before.root_mount;
        [
            ("device", differs(before.device, self.device)),
            ("disk", differs(before.disk, self.disk)),
            ("file system", differs(before.file_system, self.file_system)),
            ("mount", is_same_namespace && differs(before.mount, self.mount)),
        ]
        .into_iter()
        .find_map(|(name, has_changed)| has_changed.then_some(name))
    }
}

/// A horizon, and the numbers that go on from it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Horizon {
    /// Lock time.
    pub now: LockTime,
    /// The clock of the boot at that time, in milliseconds.
    pub boot_ms: u64,
    /// No lease that was promised ends later, unless it is in the journal.
    pub until: LockTime,
    /// The end of the quarantine; the beginning of time: there is none.
    pub quarantine_until: LockTime,
    /// The highest fencing token.
    pub token: u64,
    /// The highest fencing token that may be given out before the next horizon.
    pub tokens_until: u64,
    /// The longest lease that does not wait for the disk, in milliseconds.
    pub lease_ms_max: u64,
}

/// The id of a server as text: two hexadecimal digits for each byte.
pub fn id_text(id: &[u8; 20]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The id that [`id_text`] has written; `None`: the text is no id.
pub fn parse_id(text: &str) -> Option<[u8; 20]> {
    let mut id = [0; 20];
    if text.len() != 2 * id.len() || !text.is_ascii() {
        return None;
    }
    for (byte, at) in id.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(id)
}

const OPENED: u8 = 1;
const RECORD: u8 = 2;
const HORIZON: u8 = 3;
const FUNCTIONS: u8 = 4;
const COPIED: u8 = 5;
const STOPPED: u8 = 6;
const TAINTED: u8 = 7;
const VOLUME: u8 = 8;

/// Appends a record.
pub(crate) fn encode_record(record: &Record<'_>, out: &mut Vec<u8>) {
    out.push(RECORD);
    codec::put_number(out, record.now.as_millis());
    codec::put_number(out, record.mutations.count);
    out.extend_from_slice(&record.mutations.bytes);
}

impl Item {
    /// Appends the item.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Opened(opened) => {
                out.push(OPENED);
                out.extend_from_slice(&opened.server);
                codec::put_number(out, opened.number);
                codec::put_number(out, opened.previous);
                codec::put_number(out, opened.previous_bytes);
                out.push(u8::from(opened.boot.is_some()));
                out.extend_from_slice(&opened.boot.unwrap_or_default());
                out.push(u8::from(opened.mode != Mode::Memory));
                out.push(u8::from(opened.mode == Mode::Always));
            }
            Self::Record { now, mutations } => {
                let (now, lasts_until, ends_at) = (*now, LockTime::MAX, LockTime::MAX);
                let mutations = &mutations.iter().collect();
                encode_record(&Record { now, lasts_until, ends_at, mutations }, out);
            }
            Self::Horizon(horizon) => horizon.encode(HORIZON, out),
            Self::Functions(dump) => {
                out.push(FUNCTIONS);
                codec::put_bytes(out, dump);
            }
            Self::Copied => out.push(COPIED),
            Self::Stopped(horizon) => horizon.encode(STOPPED, out),
            Self::Tainted => out.push(TAINTED),
            Self::Volume(volume) => volume.encode(out),
        }
    }

    /// Takes the next item off the body of a frame.
    ///
    /// # Errors
    /// The bytes are not those of an item.
    pub fn decode(from: &mut Bytes, seed: Seed) -> Result<Self, DecodeError> {
        Ok(match take_byte(from)? {
            OPENED => Self::Opened(Opened {
                server: take_array(from)?,
                number: codec::take_number(from)?,
                previous: codec::take_number(from)?,
                previous_bytes: codec::take_number(from)?,
                boot: {
                    let is_known = take_byte(from)? != 0;
                    Some(take_array(from)?).filter(|_| is_known)
                },
                mode: match (take_byte(from)? != 0, take_byte(from)? != 0) {
                    (false, _) => Mode::Memory,
                    (true, false) => Mode::EverySecond,
                    (true, true) => Mode::Always,
                },
            }),
            RECORD => {
                let now = LockTime::from_millis(codec::take_number(from)?);
                let count = codec::take_number(from)?;
                // Each mutation takes a byte at least.
                if count > from.len() as u64 {
                    return Err(Damaged);
                }
                let mutations = (0..count).map(|_| codec::decode(from, seed)).collect::<Result<_, _>>()?;
                Self::Record { now, mutations }
            }
            HORIZON => Self::Horizon(Horizon::decode(from)?),
            FUNCTIONS => Self::Functions(take_bytes(from)?),
            COPIED => Self::Copied,
            STOPPED => Self::Stopped(Horizon::decode(from)?),
            TAINTED => Self::Tainted,
            VOLUME => Self::Volume(Volume::decode(from)?),
            _ => return Err(Damaged),
        })
    }
}

impl Volume {
    fn encode(&self, out: &mut Vec<u8>) {
        let Self { device, disk, file_system, root_mount, mount } = *self;
        out.push(VOLUME);
        for number in [device, disk, file_system, root_mount, mount] {
            // Zero is unknown.
            codec::put_number(out, number.map_or(0, |number| number.saturating_add(1)));
        }
    }

    fn decode(from: &mut Bytes) -> Result<Self, DecodeError> {
        let mut number = || codec::take_number(from).map(|number| number.checked_sub(1));
        let [device, disk, file_system] = [number()?, number()?, number()?];
        Ok(Self { device, disk, file_system, root_mount: number()?, mount: number()? })
    }
}

impl Horizon {
    fn encode(&self, tag: u8, out: &mut Vec<u8>) {
        out.push(tag);
        let times = [self.now, self.until, self.quarantine_until].map(LockTime::as_millis);
        let counts = [self.boot_ms, self.token, self.tokens_until, self.lease_ms_max];
        times.into_iter().chain(counts).for_each(|number| codec::put_number(out, number));
    }

    fn decode(from: &mut Bytes) -> Result<Self, DecodeError> {
        let mut number = || codec::take_number(from);
        let [now, until, quarantine_until] = [number()?, number()?, number()?].map(LockTime::from_millis);
        let [boot_ms, token, tokens_until, lease_ms_max] = [number()?, number()?, number()?, number()?];
        Ok(Self { now, boot_ms, until, quarantine_until, token, tokens_until, lease_ms_max })
    }
}

fn take_byte(from: &mut Bytes) -> Result<u8, DecodeError> {
    from.try_get_u8().map_err(|_| Damaged)
}

fn take_bytes(from: &mut Bytes) -> Result<Bytes, DecodeError> {
    let len = usize::try_from(codec::take_number(from)?).map_err(|_| Damaged)?;
    if len > from.len() { Err(Damaged) } else { Ok(from.split_to(len)) }
}

fn take_array<const N: usize>(from: &mut Bytes) -> Result<[u8; N], DecodeError> {
    if from.len() < N {
        return Err(Damaged);
    }
    let mut array = [0; N];
    from.copy_to_slice(&mut array);
    Ok(array)
}
