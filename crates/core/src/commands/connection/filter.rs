//! The filters of CLIENT LIST and CLIENT KILL: the clients that all of them fit.
//!
//! Rule    of a filter that comes twice, the last one counts. Time is linear in the request: a client is compared with a
//!         filter at a cost that does not grow with the words of the filter.
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
    /// In ascending order.
    Ids(Vec<ClientId>),
    Kind(Type),
    User(Arc<Account>),
    Peer(&'a [u8]),
    Local(&'a [u8]),
    Ip(&'a [u8]),
    Name(&'a [u8]),
    Library(&'a [u8]),
    LibraryVersion(&'a [u8]),
    /// Each once.
    Flags(Vec<u8>),
    Database(i64),
    /// Connected for at least so many seconds.
    Age(u64),
    /// Idle for at least so many seconds.
    Idle(u64),
}

/// The clients that a request selects.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    /// The only ones to look at, if any are named.
    named: Option<Vec<ClientId>>,
    tests: Vec<Test<'a>>,
    /// Whether the client that asks is left out.
    spares_self: bool,
}

impl<'a> Filter<'a> {
    /// The clients that connected from this address: the old form of CLIENT KILL.
    pub(super) fn of_peer(peer: &'a [u8]) -> Self {
        let tests = vec![Test { wanted: true, about: About::Peer(peer) }];
        Self { named: None, tests, spares_self: false }
    }

    pub(super) fn parse(call: &mut Call<'a, '_>, form: Form) -> Result<Self, Refusal> {
        let mut filter = Self { named: None, tests: Vec::new(), spares_self: form == Form::Kill };
        while let Some(word) = call.args.maybe_word() {
            let option = word.to_ascii_lowercase();
            if call.args.is_empty() {
                return Err(Refusal::Syntax);
            }
            match option.as_slice() {
                b"skipme" => filter.spares_self = yes_or_no(&mut call.args)?,
                b"id" => filter.named = Some(named_ids(&mut call.args, form)?),
                option => filter.add(option, call)?,
            }
        }
        Ok(filter)
    }

    /// Adds the filter of this name, whose words follow.
    fn add(&mut self, option: &[u8], call: &mut Call<'a, '_>) -> Result<(), Refusal> {
        let (wanted, name) = match option.strip_prefix(b"not-") {
            Some(name) => (false, name),
            None => (true, option),
        };
        let about = About::parse(name, wanted, call)?.ok_or(Refusal::Syntax)?;
        let kind = (wanted, discriminant(&about));
        self.tests.retain(|test| (test.wanted, discriminant(&test.about)) != kind);
        self.tests.push(Test { wanted, about });
        Ok(())
    }

    /// The clients that fit; those that are named by their ids in that order.
    pub(super) fn find(&self, call: &Call<'_, '_>) -> Vec<Arc<Client>> {
        let clients = &call.shared.registries.clients;
        let mut found = match &self.named {
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
    fn parse(name: &[u8], wanted: bool, call: &mut Call<'a, '_>) -> Result<Option<Self>, Refusal> {
        let args = &mut call.args;
        Ok(Some(match name {
            b"id" => Self::Ids(ascending(positive_ids(args)?)),
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
            Self::Ids(ids) => ids.binary_search(&client.id).is_ok(),
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

/// The ids behind the word ID: at least one.
fn named_ids(args: &mut Args<'_>, form: Form) -> Result<Vec<ClientId>, Refusal> {
    match form {
        Form::Kill if args.peek().and_then(number::integer).is_none() => Err(no_id()),
        Form::Kill => positive_ids(args).map(ascending),
        Form::List => {
            // Redis 7.0 lists no client for an id that none can have, and a client as often as it is named.
            let ids: Vec<_> = ids(args).map(|id| ClientId::try_from(id).unwrap_or(0)).collect();
            match ids.is_empty() || args.peek().is_some_and(|word| !is_name(word)) {
                true => Err(Refusal::said("ERR Invalid client ID")),
                false => Ok(ids),
            }
        }
    }
}

fn no_id() -> Refusal {
    Refusal::said("ERR client-id should be greater than 0")
}

fn positive_ids(args: &mut Args<'_>) -> Result<Vec<ClientId>, Refusal> {
    let id = |id| ClientId::try_from(id).ok().filter(|id| *id > 0).ok_or_else(no_id);
    let ids: Vec<ClientId> = ids(args).map(id).collect::<Result<_, _>>()?;
    if ids.is_empty() { Err(Refusal::Syntax) } else { Ok(ids) }
}

/// The integers at the front of `args`.
fn ids(args: &mut Args<'_>) -> impl Iterator<Item = i64> {
    std::iter::from_fn(|| {
        let id = args.peek().and_then(number::integer)?;
        args.maybe_word();
        Some(id)
    })
}

fn ascending(mut ids: Vec<ClientId>) -> Vec<ClientId> {
    ids.sort_unstable();
    ids.dedup();
    ids
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

/// The number of the filter of that name.
fn number_of(name: &'static str, word: &[u8]) -> Result<i64, Refusal> {
    let bad = || Refusal::said(format!("ERR {name} is not an integer or out of range"));
    number::integer(word).ok_or_else(bad)
}

fn seconds(word: &[u8], name: &'static str) -> Result<u64, Refusal> {
    let positive = u64::try_from(number_of(name, word)?).ok().filter(|number| *number > 0);
    positive.ok_or_else(|| Refusal::said(format!("ERR {name} should be greater than 0")))
}

fn database(word: &[u8], wanted: bool, databases: u16) -> Result<i64, Refusal> {
    let name = if wanted { "DB" } else { "NOT-DB" };
    let number = number_of(name, word)?;
    let last = i64::from(databases.saturating_sub(1));
    match (0..=last).contains(&number) {
        true => Ok(number),
        false => Err(Refusal::said(format!("ERR {name} number should be between 0 and {last}"))),
    }
}

/// Flags that a client may have here, in Redis or in Valkey.
const FLAGS: &[u8] = b"ABEIMNOPRSTUbcdeirtux";

fn known_flags(word: &[u8], wanted: bool) -> Result<Vec<u8>, Refusal> {
    let unknown = match wanted {
        true => "ERR Unknown flags found in the provided filter: ",
        false => "ERR Unknown flags found in the NOT-FLAGS filter: ",
    };
    match word.iter().all(|flag| FLAGS.contains(flag)) {
        true => Ok(FLAGS.iter().copied().filter(|flag| word.contains(flag)).collect()),
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
