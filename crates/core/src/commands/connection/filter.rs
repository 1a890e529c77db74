//! The filters of CLIENT LIST and CLIENT KILL: the clients that all of them fit.
//!
//! Rule    of a filter that comes twice, the last one counts.
//! Source  Redis 7.0 `networking.c` for ID, TYPE, USER, ADDR, LADDR and SKIPME, and for what a wrong ID is told; Valkey 9.1
//!         for the others and for what NOT- inverts. CAPA is not there: no client has a capability.

use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::clock::LockTime;
use redlatch_proto::error::Refusal;
use redlatch_proto::number;

use crate::commands::connection::client_list::{Type, flags};
use crate::commands::row::{Arg, integer, one_of, text, token};
use crate::commands::{Args, Call, Shared};
use crate::state::acl::Account;
use crate::state::clients::{Client, ClientId};

/// The command that filters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Kill,
    List,
}

/// What a client must be, or must not be.
#[derive(Debug)]
struct Test<'a> {
    wanted: bool,
    about: About<'a>,
}

#[derive(Debug)]
enum About<'a> {
    Ids(Vec<ClientId>),
    Kind(Type),
    User(Arc<Account>),
    Peer(&'a [u8]),
    Local(&'a [u8]),
    Ip(&'a [u8]),
    Name(&'a [u8]),
    Library(&'a [u8]),
    LibraryVersion(&'a [u8]),
    Flags(&'a [u8]),
    Database(i64),
    /// Connected for at least so many seconds.
    Age(u64),
    /// Idle for at least so many seconds.
    Idle(u64),
}

/// The clients that a request selects.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    tests: Vec<Test<'a>>,
    /// Whether the client that asks is left out.
    spares_self: bool,
}

impl<'a> Filter<'a> {
    /// The clients that connected from this address: the old form of CLIENT KILL.
    pub(super) fn of_peer(peer: &'a [u8]) -> Self {
        Self { tests: vec![Test { wanted: true, about: About::Peer(peer) }], spares_self: false }
    }

    pub(super) fn parse(call: &mut Call<'a, '_>, form: Form) -> Result<Self, Refusal> {
        let mut filter = Self { tests: Vec::new(), spares_self: form == Form::Kill };
        while let Some(word) = call.args.maybe_word() {
            let option = word.to_ascii_lowercase();
            if call.args.is_empty() {
                return Err(Refusal::Syntax);
            }
            if option == b"skipme" {
                filter.spares_self = yes_or_no(&mut call.args)?;
                continue;
            }
            let (wanted, name) = match option.strip_prefix(b"not-") {
                Some(name) => (false, name),
                None => (true, option.as_slice()),
            };
            let about = About::parse(name, wanted, call, form)?.ok_or(Refusal::Syntax)?;
            let is_same =
                |test: &Test<'_>| (test.wanted, discriminant(&test.about)) == (wanted, discriminant(&about));
            filter.tests.retain(|test| !is_same(test));
            filter.tests.push(Test { wanted, about });
        }
        Ok(filter)
    }

    /// The clients that fit; those that are named by their ids in that order.
    pub(super) fn find(&self, call: &Call<'_, '_>) -> Vec<Arc<Client>> {
        let clients = &call.shared.registries.clients;
        let named = self.tests.iter().find_map(|test| match &test.about {
            About::Ids(ids) if test.wanted => Some(ids),
            _ => None,
        });
        let mut found = match named {
            Some(ids) => ids.iter().filter_map(|id| clients.get(*id)).collect(),
            None => clients.all(),
        };
        found.retain(|client| {
            let is_spared = self.spares_self && client.id == call.session.client.id;
            !is_spared && !client.is_closing() && self.fits(client, call.shared, call.now.lock)
        });
        found
    }

    fn fits(&self, client: &Client, shared: &Shared, now: LockTime) -> bool {
        self.tests.iter().all(|test| test.about.fits(client, shared, now) == test.wanted)
    }
}

impl<'a> About<'a> {
    /// The filter of this name; `None` if there is none.
    fn parse(
        name: &[u8],
        wanted: bool,
        call: &mut Call<'a, '_>,
        form: Form,
    ) -> Result<Option<Self>, Refusal> {
        let args = &mut call.args;
        Ok(Some(match name {
            b"id" => Self::Ids(ids(args, wanted, form)?),
            b"type" => Self::Kind(Type::parse(args.word()?)?),
            b"addr" => Self::Peer(args.word()?),
            b"laddr" => Self::Local(args.word()?),
            b"ip" => Self::Ip(args.word()?),
            b"name" => Self::Name(args.word()?),
            b"lib-name" => Self::Library(args.word()?),
            b"lib-ver" => Self::LibraryVersion(args.word()?),
            b"flags" => Self::Flags(known_flags(args.word()?, wanted)?),
            b"db" => Self::Database(database(args.word()?, wanted, call.shared.keyspace.databases())?),
            b"maxage" if wanted => Self::Age(seconds(args.word()?, "maxage")?),
            b"idle" if wanted => Self::Idle(seconds(args.word()?, "idle")?),
            b"user" => {
                let user = args.word()?;
                let none = || Refusal::quoting("ERR No such user '", user, "'");
                Self::User(call.shared.access.acl.find(user).ok_or_else(none)?)
            }
            _ => return Ok(None),
        }))
    }

    fn fits(&self, client: &Client, shared: &Shared, now: LockTime) -> bool {
        let age = |since_ms: u64| now.as_millis().saturating_sub(since_ms) / 1000;
        match self {
            Self::Ids(ids) => ids.contains(&client.id),
            Self::Kind(kind) => Type::of(client) == *kind,
            Self::User(account) => client.login.is_as(account),
            Self::Peer(peer) => client.address.peer.as_bytes() == *peer,
            Self::Local(local) => client.address.local.as_bytes() == *local,
            Self::Ip(ip) => ip_of(&client.address.peer).as_bytes() == *ip,
            Self::Name(name) => client.names.lock().name.as_bytes() == *name,
            Self::Library(name) => client.names.lock().library.as_bytes() == *name,
            Self::LibraryVersion(version) => client.names.lock().library_version.as_bytes() == *version,
            Self::Flags(wanted) => {
                let flags = flags(client, shared);
                wanted.iter().all(|flag| flags.as_bytes().contains(flag))
            }
            Self::Database(database) => i64::from(client.activity.database.load(Relaxed)) == *database,
            Self::Age(seconds) => age(client.since.as_millis()) >= *seconds,
            Self::Idle(seconds) => age(client.activity.last_active_ms.load(Relaxed)) >= *seconds,
        }
    }
}

/// The ids at the front of `args`: at least one.
fn ids(args: &mut Args<'_>, wanted: bool, form: Form) -> Result<Vec<ClientId>, Refusal> {
    let mut ids = Vec::new();
    while let Some(id) = args.peek().and_then(number::integer) {
        args.word()?;
        // Redis 7.0 lists no client for an id that none can have.
        match ClientId::try_from(id).ok().filter(|id| *id > 0) {
            Some(id) => ids.push(id),
            None if form == Form::List && wanted => ids.push(0),
            None => return Err(Refusal::said("ERR client-id should be greater than 0")),
        }
    }
    match (form, args.peek()) {
        (Form::List, Some(word)) if wanted && !is_name(word) => Err(Refusal::said("ERR Invalid client ID")),
        (Form::Kill, _) if ids.is_empty() && wanted => {
            Err(Refusal::said("ERR client-id should be greater than 0"))
        }
        _ if ids.is_empty() => Err(Refusal::Syntax),
        _ => Ok(ids),
    }
}

/// Whether a word is the name of a filter.
fn is_name(word: &[u8]) -> bool {
    let is = |arg: &Arg| arg.token.is_some_and(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    FILTERS.iter().any(is)
}

fn yes_or_no(args: &mut Args<'_>) -> Result<bool, Refusal> {
    match () {
        () if args.take("YES") => Ok(true),
        () if args.take("NO") => Ok(false),
        () => Err(Refusal::Syntax),
    }
}

fn seconds(word: &[u8], name: &'static str) -> Result<u64, Refusal> {
    let number = number::integer(word);
    let number =
        number.ok_or_else(|| Refusal::said(format!("ERR {name} is not an integer or out of range")))?;
    let positive = u64::try_from(number).ok().filter(|number| *number > 0);
    positive.ok_or_else(|| Refusal::said(format!("ERR {name} should be greater than 0")))
}

fn database(word: &[u8], wanted: bool, databases: u16) -> Result<i64, Refusal> {
    let name = if wanted { "DB" } else { "NOT-DB" };
    let number = number::integer(word);
    let number =
        number.ok_or_else(|| Refusal::said(format!("ERR {name} is not an integer or out of range")))?;
    let last = i64::from(databases.saturating_sub(1));
    match (0..=last).contains(&number) {
        true => Ok(number),
        false => Err(Refusal::said(format!("ERR {name} number should be between 0 and {last}"))),
    }
}

/// Flags that a client may have here, in Redis or in Valkey.
const FLAGS: &[u8] = b"ABEIMNOPRSTUbcdeirtux";

fn known_flags(word: &[u8], wanted: bool) -> Result<&[u8], Refusal> {
    let unknown = match wanted {
        true => "ERR Unknown flags found in the provided filter: ",
        false => "ERR Unknown flags found in the NOT-FLAGS filter: ",
    };
    match word.iter().all(|flag| FLAGS.contains(flag)) {
        true => Ok(word),
        false => Err(Refusal::quoting(unknown, word, "")),
    }
}

/// The address of a peer without its port.
fn ip_of(peer: &str) -> &str {
    let ip = peer.rsplit_once(':').map_or(peer, |(ip, _)| ip);
    ip.trim_start_matches('[').trim_end_matches(']')
}

/// The filters of CLIENT LIST, each of which may be left out; CLIENT KILL has the same.
pub(super) const FILTERS: &[Arg] = &[
    TYPE.maybe(),
    integer("client-id").many().after("ID").maybe(),
    text("username").after("USER").maybe(),
    text("ip:port").after("ADDR").maybe(),
    text("ip:port").after("LADDR").maybe(),
    SKIPME.maybe(),
    integer("maxage").after("MAXAGE").maybe(),
    text("name").after("NAME").maybe(),
    integer("idle").after("IDLE").maybe(),
    text("flags").after("FLAGS").maybe(),
    text("lib-name").after("LIB-NAME").maybe(),
    text("lib-ver").after("LIB-VER").maybe(),
    integer("db").after("DB").maybe(),
    text("ip").after("IP").maybe(),
    Arg { token: Some("NOT-TYPE"), ..TYPE }.maybe(),
    integer("client-id").many().after("NOT-ID").maybe(),
    text("username").after("NOT-USER").maybe(),
    text("ip:port").after("NOT-ADDR").maybe(),
    text("ip:port").after("NOT-LADDR").maybe(),
    text("name").after("NOT-NAME").maybe(),
    text("flags").after("NOT-FLAGS").maybe(),
    text("lib-name").after("NOT-LIB-NAME").maybe(),
    text("lib-ver").after("NOT-LIB-VER").maybe(),
    integer("db").after("NOT-DB").maybe(),
    text("ip").after("NOT-IP").maybe(),
];

const TYPE: Arg = one_of(
    "client-type",
    &[
        token("normal", "NORMAL"),
        token("master", "MASTER"),
        token("primary", "PRIMARY"),
        token("replica", "REPLICA"),
        token("pubsub", "PUBSUB"),
    ],
)
.after("TYPE");

const SKIPME: Arg = one_of("skipme", &[token("yes", "YES"), token("no", "NO")]).after("SKIPME");
