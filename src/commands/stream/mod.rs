//! Streams as logs: XADD, XDEL, XLEN, XRANGE, XREVRANGE, XTRIM. There are no consumer groups.
//!
//! Rule    a trim with `~` is exact: LIMIT bounds it, but no whole nodes are kept as in Redis.
//!
//! Source  Redis 7.0 `t_stream.c`: `streamParseAddOrTrimArgsOrReply`, `streamGenericParseIDOrReply`, `string2ull`.

use smallvec::SmallVec;

use crate::clock::WallTime;
use crate::commands::row::{Arg, Flags, Group, Row, block, integer, key, one_of, text, token};
use crate::commands::{Args, Call, Outcome};
use crate::error::{Refusal, until_nul};
use crate::number;
use crate::types::stream::{Keep, StreamId, TRIM_LIMIT, Trim};
use crate::types::{Shape, Stream};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Stream, "XADD", "5.0.0", xadd)
        .summary("Adds an entry to a stream, and trims the stream if options ask for it.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[
            key("key"),
            token("nomkstream", "NOMKSTREAM").maybe(),
            TRIM.maybe(),
            one_of("id-selector", &[token("auto-id", "*"), text("id")]),
            block("data", &[text("field"), text("value")]).many(),
        ]),
    Row::new(Group::Stream, "XDEL", "5.0.0", xdel)
        .summary("Deletes entries of a stream.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), text("id").many()]),
    Row::new(Group::Stream, "XLEN", "5.0.0", xlen)
        .summary("Returns the number of entries of a stream.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::Stream, "XRANGE", "5.0.0", xrange)
        .summary("Returns the entries of a stream from one id to another.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key"), text("start"), text("end"), integer("count").after("COUNT").maybe()]),
    Row::new(Group::Stream, "XREVRANGE", "5.0.0", xrevrange)
        .summary("Returns the entries of a stream from one id to another, last first.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key"), text("end"), text("start"), integer("count").after("COUNT").maybe()]),
    Row::new(Group::Stream, "XTRIM", "5.0.0", xtrim)
        .summary("Removes the oldest entries of a stream.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::LINEAR))
        .args(&[key("key"), TRIM]),
];

const TRIM: Arg = block(
    "trim",
    &[
        one_of("strategy", &[token("maxlen", "MAXLEN"), token("minid", "MINID")]),
        one_of("operator", &[token("equal", "="), token("approximately", "~")]).maybe(),
        text("threshold"),
        integer("count").after("LIMIT").maybe(),
    ],
);

/// The id argument of XADD.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NewId {
    /// `*`
    Auto,
    /// `ms-*`
    AutoSeq(u64),
    /// A complete id.
    Given(StreamId),
}

impl NewId {
    fn parse(word: &[u8]) -> Result<Self, Refusal> {
        if until_nul(word) == b"*" {
            return Ok(Self::Auto);
        }
        match until_nul(word).strip_suffix(b"-*") {
            Some(ms) if word.len() <= ID_BYTES_MAX && !ms.contains(&b'-') => {
                unsigned(ms).map(Self::AutoSeq).ok_or(INVALID_ID)
            }
            _ => strict_id(word, 0).map(Self::Given),
        }
    }

    /// The id of the new entry, which is higher than `last`.
    fn resolve(self, last: StreamId, now: WallTime) -> Result<StreamId, Refusal> {
        if last == StreamId::MAX {
            return Err(Refusal::said(
                "ERR The stream has exhausted the last possible ID, unable to add more items",
            ));
        }
        let id = match self {
            Self::Auto if now.as_millis() > last.ms => StreamId { ms: now.as_millis(), seq: 0 },
            // There is a next id, since `last` is not the highest.
            Self::Auto => last.next().unwrap_or(StreamId::MAX),
            Self::AutoSeq(ms) if ms == last.ms => {
                // Redis 7.0 answers this misleading text.
                let seq = last.seq.checked_add(1);
                let seq = seq.ok_or_else(|| Refusal::said("ERR Elements are too large to be stored"))?;
                StreamId { ms, seq }
            }
            Self::AutoSeq(ms) => StreamId { ms, seq: 0 },
            Self::Given(id) => id,
        };
        if id <= last {
            return Err(Refusal::said(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item",
            ));
        }
        Ok(id)
    }
}

/// The options of XADD, which precede the id, and of XTRIM.
#[derive(Debug, Default)]
struct AddOptions {
    only_present: bool,
    trim: Option<Trim>,
    /// True if `~` was given, which allows LIMIT. The trim is exact in any case.
    is_approximate: bool,
    id: Option<NewId>,
}

impl AddOptions {
    /// Reads the options: up to the id if the command `has_id`, otherwise all words.
    fn take(args: &mut Args<'_>, has_id: bool) -> Result<Self, Refusal> {
        let (mut options, mut limit) = (Self::default(), None);
        while let Some(word) = args.peek() {
            let has_more = args.len() > 1;
            if has_id && until_nul(word) == b"*" {
                options.id = Some(NewId::parse(args.word()?)?);
                break;
            }
            if has_more && args.take("MAXLEN") {
                options.set_trim(args, |word| {
                    let most = number::integer(word).ok_or(Refusal::NotAnInteger)?;
                    let most = u64::try_from(most);
                    most.map(Keep::Last).map_err(|_| Refusal::said("ERR The MAXLEN argument must be >= 0."))
                })?;
            } else if has_more && args.take("MINID") {
                options.set_trim(args, |word| strict_id(word, 0).map(Keep::From))?;
            } else if has_more && args.take("LIMIT") {
                let most = u64::try_from(args.integer()?);
                limit = Some(most.map_err(|_| Refusal::said("ERR The LIMIT argument must be >= 0."))?);
            } else if has_id && args.take("NOMKSTREAM") {
                options.only_present = true;
            } else if has_id {
                options.id = Some(NewId::parse(args.word()?)?);
                break;
            } else {
                return Err(Refusal::Syntax);
            }
        }
        options.set_limit(limit, has_id)?;
        Ok(options)
    }

    fn set_trim(
        &mut self,
        args: &mut Args<'_>,
        threshold: impl Fn(&[u8]) -> Result<Keep, Refusal>,
    ) -> Result<(), Refusal> {
        if self.trim.is_some() {
            return Err(Refusal::said(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let is_approximate = args.len() > 1 && args.take("~");
        if !is_approximate && args.len() > 1 {
            args.take("=");
        }
        self.is_approximate = is_approximate;
        self.trim = Some(Trim { keep: threshold(args.word()?)?, limit: 0 });
        Ok(())
    }

    fn set_limit(&mut self, limit: Option<u64>, has_id: bool) -> Result<(), Refusal> {
        let is_limited = limit.is_some_and(|limit| limit > 0);
        let refused = match &mut self.trim {
            None if is_limited => "LIMIT cannot be used without specifying a trimming strategy",
            None if !has_id => "XTRIM must be called with a trimming strategy",
            Some(trim) if self.is_approximate => {
                trim.limit = limit.unwrap_or(TRIM_LIMIT);
                return Ok(());
            }
            _ if limit.is_some() => "LIMIT cannot be used without the special ~ option",
            _ => return Ok(()),
        };
        Err(Refusal::said(format!("ERR syntax error, {refused}")))
    }
}

fn xadd(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let options = AddOptions::take(&mut call.args, true)?;
    let words: SmallVec<[&[u8]; 16]> = call.args.rest().collect();
    let id = options.id.filter(|_| !words.is_empty() && words.len().is_multiple_of(2));
    let id = id.ok_or_else(|| Refusal::Arity(call.command.name.as_str().into()))?;
    if id == NewId::Given(StreamId::MIN) {
        return Err(Refusal::said("ERR The ID specified in XADD must be greater than 0-0"));
    }

    let editor = match options.only_present {
        true => call.view.find::<Stream>(name)?,
        false => Some(call.view.open::<Stream>(name)?),
    };
    let Some(mut editor) = editor else {
        call.reply.null();
        return Ok(Outcome::Replied);
    };
    let id = id.resolve(editor.get().last_id(), call.now.wall())?;
    editor.append(id, &words);
    editor.event(b't', "xadd");
    if options.trim.is_some_and(|trim| editor.trim(trim) > 0) {
        editor.event(b't', "xtrim");
    }

    call.reply.bulk(id_text(id).as_bytes());
    Ok(Outcome::Replied)
}

fn xtrim(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let options = AddOptions::take(&mut call.args, false)?;

    let mut gone = 0;
    if let (Some(trim), Some(mut editor)) = (options.trim, call.view.find::<Stream>(name)?) {
        gone = editor.trim(trim);
        if gone > 0 {
            editor.event(b't', "xtrim");
        }
    }

    call.reply.count(gone);
    Ok(Outcome::Replied)
}

fn xdel(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let mut gone = 0;
    // As in Redis, the ids are read only if the key exists, and all are read before the first is deleted.
    if let Some(mut editor) = call.view.find::<Stream>(name)? {
        let ids: Result<SmallVec<[StreamId; 8]>, Refusal> =
            call.args.rest().map(|word| strict_id(word, 0)).collect();
        gone = ids?.into_iter().filter(|id| editor.delete(*id)).count();
        if gone > 0 {
            editor.event(b't', "xdel");
        }
    }

    call.reply.count(gone);
    Ok(Outcome::Replied)
}

fn xlen(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let len = call.view.read_as::<Stream>(name)?.map_or(0, Stream::len);
    call.reply.count(len);
    Ok(Outcome::Replied)
}

fn xrange(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let (from, to) = (call.args.word()?, call.args.word()?);

    answer_range(call, name, from, to, false)
}

fn xrevrange(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let (to, from) = (call.args.word()?, call.args.word()?);

    answer_range(call, name, from, to, true)
}

fn answer_range(
    call: &mut Call<'_, '_>,
    name: &[u8],
    from: &[u8],
    to: &[u8],
    is_reverse: bool,
) -> Result<Outcome, Refusal> {
    let from = match open_bound(from) {
        Some(id) => {
            strict_id(id, 0)?.next().ok_or_else(|| Refusal::said("ERR invalid start ID for the interval"))?
        }
        None => any_id(from, 0)?,
    };
    let to = match open_bound(to) {
        Some(id) => strict_id(id, u64::MAX)?
            .previous()
            .ok_or_else(|| Refusal::said("ERR invalid end ID for the interval"))?,
        None => any_id(to, u64::MAX)?,
    };
    let mut most = None;
    while !call.args.is_empty() {
        if call.args.len() < 2 || !call.args.take("COUNT") {
            return Err(Refusal::Syntax);
        }
        most = Some(usize::try_from(call.args.integer()?.max(0)).unwrap_or(usize::MAX));
    }

    let Some(stream) = call.view.read_as::<Stream>(name)? else {
        call.reply.array(0);
        return Ok(Outcome::Replied);
    };
    if most == Some(0) {
        call.reply.null_array();
        return Ok(Outcome::Replied);
    }
    let most = most.unwrap_or(usize::MAX);
    let entries = stream.range(from..=to);
    let found: Vec<_> =
        if is_reverse { entries.rev().take(most).collect() } else { entries.take(most).collect() };
    call.reply.array(found.len());
    for entry in found {
        call.reply.array(2);
        call.reply.bulk(id_text(entry.id).as_bytes());
        call.reply.array(entry.words.len());
        entry.words.iter().for_each(|word| call.reply.bulk(word));
    }
    Ok(Outcome::Replied)
}

/// The id behind `(`, which excludes it from the range.
fn open_bound(word: &[u8]) -> Option<&[u8]> {
    word.strip_prefix(b"(").filter(|id| !id.is_empty())
}

fn id_text(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}

/// A bound of a range: an id, `-` or `+`.
fn any_id(word: &[u8], missing_seq: u64) -> Result<StreamId, Refusal> {
    match until_nul(word) {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => strict_id(word, missing_seq),
    }
}

/// An id, whose sequence number may be missing.
fn strict_id(word: &[u8], missing_seq: u64) -> Result<StreamId, Refusal> {
    if word.len() > ID_BYTES_MAX {
        return Err(INVALID_ID);
    }
    let mut parts = until_nul(word).splitn(2, |byte| *byte == b'-');
    let ms = parts.next().and_then(unsigned).ok_or(INVALID_ID)?;
    let seq = match parts.next() {
        Some(seq) => unsigned(seq).ok_or(INVALID_ID)?,
        None => missing_seq,
    };
    Ok(StreamId { ms, seq })
}

/// A 64-bit number as Redis reads it with C's `strtoull`: leading spaces, a sign and leading zeros are accepted.
/// A negative number wraps around, unless it has the canonical form of an integer.
fn unsigned(text: &[u8]) -> Option<u64> {
    if let Some(number) = number::integer(text) {
        return u64::try_from(number).ok();
    }
    number::wrapped(text.trim_ascii_start())
}

const INVALID_ID: Refusal =
    Refusal::Said(std::borrow::Cow::Borrowed("ERR Invalid stream ID specified as stream command argument"));
/// Maximum length of an id in bytes.
const ID_BYTES_MAX: usize = 127;
