//! CLIENT: what a connection says about itself, and does to others.
//!
//! Source  Redis 7.0 `networking.c`; SETINFO and NO-TOUCH as in Redis 7.2.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::connection::{client_name, printable};
use super::row::{Arg, Flags, Group, Row, integer, one_of, text, token};
use super::{Args, Call, Outcome, Shared, help, table};
use crate::clock::LockTime;
use crate::error::Refusal;
use crate::number;
use crate::resp::Protocol;
use crate::state::clients::{Client, ClientId};
use crate::state::session::Replies;

const MODEST: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);
const ADMIN: Flags = MODEST.with(Flags::ADMIN);

pub(super) const ROWS: &[Row] = &[Row {
    name: "CLIENT",
    summary: "A container for commands about connections.",
    since: "2.4.0",
    flags: Flags::NONE,
    subcommands: &[
        Row {
            name: "GETNAME",
            summary: "Returns the name of this connection.",
            since: "2.6.9",
            run: get_name,
            ..ROW
        },
        help::row(Group::Connection),
        Row { name: "ID", summary: "Returns the number of this connection.", run: id, ..ROW },
        Row { name: "INFO", summary: "Describes this connection.", since: "6.2.0", run: info, ..ROW },
        Row {
            name: "KILL",
            summary: "Ends the connections that fit.",
            since: "2.4.0",
            flags: ADMIN,
            args: &[one_of("filter", &[text("old-format"), FILTER.many()])],
            run: kill,
            ..ROW
        },
        Row {
            name: "LIST",
            summary: "Describes all connections, or some.",
            since: "2.4.0",
            flags: ADMIN,
            args: &[TYPE.maybe(), integer("client-id").many().after("ID").maybe()],
            run: list,
            ..ROW
        },
        Row {
            name: "NO-EVICT",
            summary: "Asks not to be disconnected when memory is short; it never is for that reason.",
            since: "7.0.0",
            flags: ADMIN,
            args: &[SWITCH],
            run: no_evict,
            ..ROW
        },
        Row {
            name: "NO-TOUCH",
            summary: "Chooses whether this connection's reads count as uses of their keys.",
            since: "7.2.0",
            args: &[SWITCH],
            run: no_touch,
            ..ROW
        },
        Row {
            name: "PAUSE",
            summary: "Holds back the commands of all connections for a while, or those that may write.",
            since: "3.0.0",
            flags: ADMIN.with(Flags::UNPAUSED),
            args: &[
                integer("timeout"),
                one_of("mode", &[token("write", "WRITE"), token("all", "ALL")]).maybe(),
            ],
            run: pause,
            ..ROW
        },
        Row {
            name: "REPLY",
            summary: "Chooses whether this connection is answered.",
            since: "3.2.0",
            args: &[one_of("action", &[token("on", "ON"), token("off", "OFF"), token("skip", "SKIP")])],
            run: reply,
            ..ROW
        },
        Row {
            name: "SETINFO",
            summary: "Names the library behind this connection, or its version.",
            since: "7.2.0",
            args: &[one_of("attr", &[text("libname").after("LIB-NAME"), text("libver").after("LIB-VER")])],
            run: set_info,
            ..ROW
        },
        Row {
            name: "SETNAME",
            summary: "Names this connection.",
            since: "2.6.9",
            args: &[text("connection-name")],
            run: set_name,
            ..ROW
        },
        Row {
            name: "UNPAUSE",
            summary: "Ends what PAUSE began.",
            since: "6.2.0",
            flags: ADMIN.with(Flags::UNPAUSED),
            run: unpause,
            ..ROW
        },
    ],
    run: super::container,
    ..ROW
}];

const ROW: Row = Row {
    name: "",
    summary: "",
    since: "5.0.0",
    group: Group::Connection,
    flags: MODEST,
    args: &[],
    subcommands: &[],
    run: id,
};

const SWITCH: Arg = one_of("enabled", &[token("on", "ON"), token("off", "OFF")]);
const TYPE: Arg = one_of(
    "client-type",
    &[
        token("normal", "NORMAL"),
        token("master", "MASTER"),
        token("replica", "REPLICA"),
        token("pubsub", "PUBSUB"),
    ],
)
.after("TYPE");
const FILTER: Arg = one_of(
    "new-format",
    &[
        integer("client-id").after("ID"),
        TYPE,
        text("username").after("USER"),
        text("ip:port").after("ADDR"),
        text("ip:port").after("LADDR"),
        one_of("skipme", &[token("yes", "YES"), token("no", "NO")]).after("SKIPME"),
    ],
);

fn id(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.integer(call.session.client.id as i64);
    Ok(Outcome::Replied)
}

fn get_name(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    match call.session.client.names.lock().name.as_bytes() {
        b"" => call.reply.null(),
        name => call.reply.bulk(name),
    }
    Ok(Outcome::Replied)
}

fn set_name(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = client_name(&mut call.args)?;
    call.args.finish()?;

    call.session.client.names.lock().name = name;

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn set_info(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let attribute = call.args.word()?;
    let value = call.args.word()?;
    call.args.finish()?;

    let attribute = String::from_utf8_lossy(attribute).to_ascii_lowercase();
    let value = printable(value);
    let mut names = call.session.client.names.lock();
    let place = match attribute.as_str() {
        "lib-name" => &mut names.library,
        "lib-ver" => &mut names.library_version,
        _ => return Err(Refusal::said(format!("ERR Unrecognized option '{attribute}'"))),
    };
    *place = value.ok_or_else(|| {
        Refusal::said(format!("ERR {attribute} cannot contain spaces, newlines or special characters."))
    })?;

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn switch(args: &mut Args<'_>) -> Result<bool, Refusal> {
    let on = args.take("ON");
    if !on && !args.take("OFF") {
        return Err(Refusal::Syntax);
    }
    args.finish()?;
    Ok(on)
}

fn no_evict(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    flip(call, |client| &client.no_evict)
}

fn no_touch(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    flip(call, |client| &client.no_touch)
}

fn flip(call: &mut Call<'_, '_>, which: fn(&Client) -> &AtomicBool) -> Result<Outcome, Refusal> {
    let on = switch(&mut call.args)?;

    which(&call.session.client).store(on, Relaxed);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn reply(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let was = call.session.replies;
    call.session.replies = if call.args.take("ON") {
        Replies::On
    } else if call.args.take("OFF") {
        Replies::Off
    } else if call.args.take("SKIP") {
        if was == Replies::Off { was } else { Replies::SkipNext }
    } else {
        return Err(Refusal::Syntax);
    };

    if call.session.replies == Replies::On {
        call.reply.ok();
    }
    Ok(Outcome::Replied)
}

fn pause(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let millis = number::integer(call.args.word()?)
        .ok_or_else(|| Refusal::said("ERR timeout is not an integer or out of range"))?;
    if millis < 0 {
        return Err(Refusal::said("ERR timeout is negative"));
    }
    let writes_only = call.args.take("WRITE");
    if !writes_only && !call.args.take("ALL") && !call.args.is_empty() {
        return Err(Refusal::said("ERR CLIENT PAUSE mode must be WRITE or ALL"));
    }
    if !call.args.is_empty() {
        return Err(Refusal::said(
            "ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.",
        ));
    }

    call.shared.pause.begin(call.now.lock + millis as u64, writes_only, call.now.lock);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn unpause(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.shared.pause.end();
    for client in call.shared.clients.all() {
        client.wake();
    }

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// The kinds of client that filters know. There are no replicas, and no master.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Type {
    Normal,
    Nobody,
    PubSub,
}

fn client_type(args: &mut Args<'_>) -> Result<Type, Refusal> {
    let word = args.word()?;
    match word.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(Type::Normal),
        b"pubsub" => Ok(Type::PubSub),
        b"master" | b"replica" | b"slave" => Ok(Type::Nobody),
        _ => Err(Refusal::said(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(word)))),
    }
}

fn is_of(client: &Client, kind: Type) -> bool {
    let listens = client.subscriptions.load(Relaxed) + client.patterns.load(Relaxed) > 0;
    match kind {
        Type::Normal => !listens,
        Type::PubSub => listens,
        Type::Nobody => false,
    }
}

fn info(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut line = String::new();
    describe(&mut line, &call.session.client, call.now.lock);

    call.reply.verbatim(&line);
    Ok(Outcome::Replied)
}

fn list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let clients = if call.args.is_empty() {
        call.shared.clients.all()
    } else if call.args.take("TYPE") {
        let kind = client_type(&mut call.args)?;
        call.args.finish()?;
        call.shared.clients.all().into_iter().filter(|client| is_of(client, kind)).collect()
    } else if call.args.take("ID") && !call.args.is_empty() {
        let ids: Option<Vec<i64>> = call.args.rest().map(number::integer).collect();
        let ids = ids.ok_or_else(|| Refusal::said("ERR Invalid client ID"))?;
        ids.into_iter().filter_map(|id| call.shared.clients.get(id as ClientId)).collect()
    } else {
        return Err(Refusal::Syntax);
    };

    let mut lines = String::new();
    for client in clients {
        describe(&mut lines, &client, call.now.lock);
    }
    call.reply.verbatim(&lines);
    Ok(Outcome::Replied)
}

/// One line of CLIENT LIST.
fn describe(lines: &mut String, client: &Client, now: LockTime) {
    let names = client.names.lock().clone();
    let seconds = |since_ms: u64| now.as_millis().saturating_sub(since_ms) / 1000;
    let last = client.last_command.load(Relaxed);
    let command = table().all().find(|command| command.index == last).map_or("NULL", |command| &command.name);
    let (query, unread) = (client.query_bytes.load(Relaxed), client.reply_bytes.load(Relaxed));
    // Writing to a String cannot fail.
    let _ = writeln!(
        lines,
        "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={} db={} sub={} psub={} ssub=0 multi=-1 \
         qbuf={query} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl={unread} oll=0 omem=0 tot-mem={} events=r \
         cmd={command} user=default redir=-1 resp={} lib-name={} lib-ver={}",
        client.id,
        client.peer,
        client.local,
        names.name,
        seconds(client.since.as_millis()),
        seconds(client.last_active_ms.load(Relaxed)),
        flags(client),
        client.database.load(Relaxed),
        client.subscriptions.load(Relaxed),
        client.patterns.load(Relaxed),
        query + unread,
        if client.protocol() == Protocol::Resp3 { 3 } else { 2 },
        names.library,
        names.library_version,
    );
}

fn flags(client: &Client) -> String {
    let letters = [
        (is_of(client, Type::PubSub), 'P'),
        (client.is_unix, 'U'),
        (client.no_evict.load(Relaxed), 'e'),
        (client.no_touch.load(Relaxed), 'T'),
    ];
    let letters: String =
        letters.into_iter().filter_map(|(is_set, letter)| is_set.then_some(letter)).collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}

/// Which clients CLIENT KILL ends.
#[derive(Debug, Default)]
struct Filter<'a> {
    id: Option<ClientId>,
    kind: Option<Type>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    spares_me: bool,
}

impl Filter<'_> {
    fn fits(&self, client: &Client, me: ClientId) -> bool {
        self.id.is_none_or(|id| id == client.id)
            && self.kind.is_none_or(|kind| is_of(client, kind))
            && self.peer.is_none_or(|peer| peer == client.peer.as_bytes())
            && self.local.is_none_or(|local| local == client.local.as_bytes())
            && !(self.spares_me && client.id == me)
    }
}

fn filter<'a>(args: &mut Args<'a>) -> Result<Filter<'a>, Refusal> {
    let mut filter = Filter { spares_me: true, ..Filter::default() };
    while !args.is_empty() {
        if args.len() < 2 {
            return Err(Refusal::Syntax);
        }
        if args.take("ID") {
            let id = number::integer(args.word()?).filter(|id| *id > 0);
            let id = id.ok_or_else(|| Refusal::said("ERR client-id should be greater than 0"))?;
            filter.id = Some(id as ClientId);
        } else if args.take("TYPE") {
            filter.kind = Some(client_type(args)?);
        } else if args.take("ADDR") {
            filter.peer = Some(args.word()?);
        } else if args.take("LADDR") {
            filter.local = Some(args.word()?);
        } else if args.take("USER") {
            let user = args.word()?;
            if user != b"default" {
                return Err(Refusal::said(format!("ERR No such user '{}'", String::from_utf8_lossy(user))));
            }
        } else if args.take("SKIPME") {
            filter.spares_me = args.take("YES");
            if !filter.spares_me && !args.take("NO") {
                return Err(Refusal::Syntax);
            }
        } else {
            return Err(Refusal::Syntax);
        }
    }
    Ok(filter)
}

fn kill(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    // One word is the old form: an address, which may be one's own.
    let is_old = call.args.len() == 1;
    let filter = if is_old {
        Filter { peer: Some(call.args.word()?), ..Filter::default() }
    } else {
        filter(&mut call.args)?
    };

    let (ended, me) = end(call.shared, &filter, call.session.client.id);

    if is_old && ended == 0 {
        return Err(Refusal::said("ERR No such client"));
    }
    if is_old {
        call.reply.ok();
    } else {
        call.reply.count(ended);
    }
    Ok(if me { Outcome::Close } else { Outcome::Replied })
}

/// Ends the clients that fit; says how many, and whether the caller is among them: it is answered first.
fn end(shared: &Shared, filter: &Filter<'_>, me: ClientId) -> (usize, bool) {
    let fitting: Vec<Arc<Client>> =
        shared.clients.all().into_iter().filter(|client| filter.fits(client, me)).collect();
    for client in fitting.iter().filter(|client| client.id != me) {
        client.close();
    }
    (fitting.len(), fitting.iter().any(|client| client.id == me))
}
