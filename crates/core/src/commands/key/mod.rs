//! Commands on keys of any type: DEL, EXISTS, RENAME, COPY, MOVE and similar.
//!
//! Source  Redis 7.0 `db.c`.

pub(in crate::commands) mod database;
pub(in crate::commands) mod expire;
pub(in crate::commands) mod object;
pub(in crate::commands) mod scan;

use redlatch_proto::clock::Deadline;
use redlatch_proto::error::Refusal;

use crate::commands::key::database::refuse_in_cluster;
use crate::commands::row::{Flags, Group, Row, integer, key, token};
use crate::commands::{Call, Outcome};
use crate::keyspace::{Entry, Form, Lease, Occupied};
use crate::locks::{HolderRequest, RequestOutcome};
use crate::types::Object;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Generic, "COPY", "6.2.0", copy)
        .summary("Copies a key with its lease to another key.")
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .args(&[
            key("source"),
            key("destination"),
            integer("destination-db").after("DB").maybe(),
            token("replace", "REPLACE").maybe(),
        ]),
    Row::new(Group::Generic, "DEL", "1.0.0", del)
        .summary("Deletes keys.")
        .flags(Flags::WRITE.with(Flags::REMOVES))
        .args(&[key("key").many()]),
    Row::new(Group::Generic, "EXISTS", "1.0.0", exists)
        .summary("Returns the number of keys that exist; a key that is named twice counts twice.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key").many()]),
    Row::new(Group::Generic, "MOVE", "1.0.0", move_key)
        .summary("Moves a key to another database, unless that has the key.")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), integer("db")]),
    Row::new(Group::Generic, "RENAME", "1.0.0", rename)
        .summary("Renames a key and replaces the key of the new name.")
        .flags(Flags::WRITE)
        .args(&[key("key"), key("newkey")]),
    Row::new(Group::Generic, "RENAMENX", "1.0.0", renamenx)
        .summary("Renames a key, if no key has the new name.")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), key("newkey")]),
    Row::new(Group::Generic, "TOUCH", "3.2.1", touch)
        .summary("Returns the number of keys that exist, and marks them as used.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key").many()]),
    Row::new(Group::Generic, "TYPE", "1.0.0", type_of)
        .summary("Returns the type of the value of a key.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::Generic, "UNLINK", "4.0.0", del)
        .summary("Deletes keys, like DEL.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key").many()]),
];

fn del(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut deleted = 0_i64;
    let mut args = call.args;
    for name in args.rest() {
        if call.view.remove(name) {
            call.view.event(b'g', "del", name);
            deleted = deleted.saturating_add(1);
        } else {
            call.comes_to(RequestOutcome::NotHeld(HolderRequest::Release), name, None);
        }
    }

    call.reply.integer(deleted);
    Ok(Outcome::Replied)
}

fn exists(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let found = call.args.rest().filter(|name| call.view.peek(name).is_some()).count();

    call.reply.count(found);
    Ok(Outcome::Replied)
}

fn touch(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let found = call.args.rest().filter(|name| call.view.read(name).is_some()).count();

    call.reply.count(found);
    Ok(Outcome::Replied)
}

fn type_of(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let type_name = call.view.peek(name).map_or("none", |found| found.type_name());

    call.reply.status(type_name);
    Ok(Outcome::Replied)
}

fn rename(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    move_to(call, true)?;

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn renamenx(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let is_moved = move_to(call, false)?;

    call.reply.integer(i64::from(is_moved));
    Ok(Outcome::Replied)
}

/// Renames the key. Returns false if nothing changed.
fn move_to(call: &mut Call<'_, '_>, replaces: bool) -> Result<bool, Refusal> {
    let from = call.args.word()?;
    let to = call.args.word()?;

    let moved = call.view.entry(from).occupied().map(Content::of).ok_or(Refusal::NoSuchKey)??;
    if from == to || (!replaces && matches!(call.view.entry(to), Entry::Occupied(_))) {
        return Ok(false);
    }
    // The old key is removed first, so that a large value is not stored three times.
    call.view.remove(from);
    moved.put_anew(call, to);
    call.view.event(b'g', "rename_from", from);
    call.view.event(b'g', "rename_to", to);
    Ok(true)
}

fn copy(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let from = call.args.word()?;
    let to = call.args.word()?;
    let source = call.view.database();
    let (mut database, mut replaces) = (source, false);
    while !call.args.is_empty() {
        if call.args.take("REPLACE") {
            replaces = true;
        } else if call.args.take("DB") {
            let number = call.args.word()?;
            database = crate::commands::key::database::number(number, call.shared)?;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    if database != 0 {
        refuse_in_cluster(call.shared, "Copying to another database is")?;
    }
    if from == to && database == source {
        return Err(Refusal::said("ERR source and destination objects are the same"));
    }

    let mut is_copied = false;
    if let Some(content) = call.view.read(from).map(Content::of) {
        let content = content?;
        call.view.select(database);
        if replaces || matches!(call.view.entry(to), Entry::Vacant(_)) {
            content.put_anew(call, to);
            call.view.event(b'g', "copy_to", to);
            is_copied = true;
        }
        call.view.select(source);
    }

    call.reply.integer(i64::from(is_copied));
    Ok(Outcome::Replied)
}

fn move_key(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    refuse_in_cluster(call.shared, "MOVE is")?;
    let name = call.args.word()?;
    let source = call.view.database();
    let target = crate::commands::key::database::number(call.args.word()?, call.shared)?;
    if source == target {
        return Err(Refusal::said("ERR source and destination objects are the same"));
    }

    let mut is_moved = false;
    if let Some(content) = call.view.entry(name).occupied().map(Content::of) {
        let content = content?;
        call.view.select(target);
        is_moved = matches!(call.view.entry(name), Entry::Vacant(_));
        if is_moved {
            content.put_anew(call, name);
            call.view.select(source);
            call.view.remove(name);
            call.view.event(b'g', "move_from", name);
            call.view.select(target);
            call.view.event(b'g', "move_to", name);
        }
        call.view.select(source);
    }

    call.reply.integer(i64::from(is_moved));
    Ok(Outcome::Replied)
}

/// The value and deadline of a key.
#[derive(Debug)]
struct Content {
    value: Value,
    deadline: Option<Deadline>,
}

#[derive(Debug)]
enum Value {
    String(Vec<u8>, Form),
    Object(Object),
}

impl Content {
    fn of(found: Occupied<'_>) -> Result<Self, Refusal> {
        let value = match found.object() {
            Some(Object::Lock(_)) => {
                return Err(Refusal::said(
                    "ERR the key is a lock that is held: use LOCK.RELEASE here and LOCK.ACQUIRE there",
                ));
            }
            Some(object) => Value::Object(object.clone()),
            None => Value::String(found.string()?.to_vec(), found.form()),
        };
        Ok(Self { value, deadline: found.deadline() })
    }

    /// Stores the content under a key. The previous value of the key, of any type, is removed.
    fn put_anew(self, call: &mut Call<'_, '_>, name: &[u8]) {
        call.view.remove(name);
        if let Entry::Vacant(place) = call.view.entry(name) {
            let lease = self.deadline.map_or(Lease::Never, Lease::Until);
            match self.value {
                Value::String(value, form) => place.insert(&value, lease).set_form(form),
                Value::Object(object) => {
                    place.insert_object(object, lease);
                }
            }
        }
    }
}
