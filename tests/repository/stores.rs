//! Each field that a server keeps is either counted in `used_memory`, or bounded, or holds no bytes of a client.
//!
//! Belongs here  the list of all these fields. It is compared with the structs in the sources, so that a new field fails
//!               until it is listed. That the sums are true is shown by `allocations/held.rs`.

use std::collections::{BTreeMap, BTreeSet};

use redlatch_core::state::ledger::Kind;

use super::tidy::sources;

/// For each struct its file, and for each of its fields one of:
/// `in STRUCT`, which is listed; `counted KIND`, of the ledger; `counted in TEXT`; `bounded by TEXT`; `client`: the struct
/// `Client`, once more. Fields after `none` hold no bytes of a client.
const STORES: &str = "
Shared crates/core/src/commands/shared.rs
  keyspace: in Keyspace
  registries: in Registries
  settings: in Settings
  scripts: in Scripts
  locks: in Locks
  access: in AccessControl
  stats: in Statistics
  monitors: in Monitors
  instance: in Instance
  log: in State
  extension: in Testing
  peers: in Peers
  beside: in Beside
  none: commands cluster_enabled clock log_limits stop pause expires_actively namespace cluster random config_file

Keyspace crates/core/src/keyspace/mod.rs
  cells: in ShardState
  journal: in State
  lock_observers: in Spans
  long_call: in LongCall
  postponed: bounded by the clients that have gone during a long call
  none: hasher seed databases shows_all_locks tells_contended waits last_token keeps_releases alarm memory largest ledger
  linked: bounded by the shards
  none: tick_from lookups

Beside crates/core/src/state/beside.rs
  address: bounded by an argument of the program
  unread: bounded by the locks that are shown, and by the changes that the program keeps
  none: requests is_tracking changes rounds keys left_out round_ms gaps is_in_gap

ShardState crates/core/src/keyspace/mod.rs
  shard: counted in Keyspace::used_bytes
  observers: counted tracking
  queues: counted waits
  places: bounded by the waits of the last leader, for ten seconds
  spare: bounded by Effects::is_small
  none: reported_bytes hits misses expired

Spans crates/core/src/commands/lock/spans.rs
  waits: bounded by one span for each request that waits

LongCall crates/core/src/keyspace/long_call.rs
  shards: bounded by the shards
  waiting: client
  none: calls

State crates/core/src/journal/log.rs
  frame: bounded by one write to the journal
  functions: bounded by the texts of libraries, which are counted
  error: bounded by the text of the system
  failure: bounded by the text of the system
  none: opened token promised_until leased_until leases durable syncing bytes previous_bytes copied_bytes is_copied
  none: is_copy_wanted is_stopped synced_at

Registries crates/core/src/state/registries.rs
  clients: in Clients
  channels: counted subscriptions
  tracking: counted tracking
  lock_sessions: counted lock.sessions

Clients crates/core/src/state/clients.rs
  by_id: in Client
  none: last_id connected

Client crates/core/src/state/clients.rs
  names: in Names
  address: bounded by the length of an address
  subscriptions: counted subscriptions
  blocking: counted waits
  outbox: counted in Client::buffer_bytes
  buffers: counted in Client::buffer_bytes
  none: id since login options activity subscribed is_subscribed transaction lock_session polling searches has_messages
  none: output_limits ledger closing

Names crates/core/src/state/clients.rs
  name: bounded by NAME_BYTES_MAX
  library: bounded by NAME_BYTES_MAX
  library_version: bounded by NAME_BYTES_MAX

Session crates/core/src/state/session.rs
  client: client
  account: in Account
  parked: counted waits
  transaction: counted transactions
  watching: counted watches
  lock_session: counted lock.sessions
  scratch: bounded by one request, whose buffer is counted
  none: database protocol replies authenticated login_turn may_block used_nanos is_nested locks_all is_shown
  none: is_short_of_memory slot asking reads_replicas is_half_way reads last_row span called calls_until_sample

Settings crates/core/src/state/settings.rs
  values: bounded by VALUE_BYTES_MAX
  directives: bounded by VALUE_BYTES_MAX
  none: numbers changing events output_limits on_change validators

Scripts crates/core/src/commands/shared/parts.rs
  cache: in ScriptCache
  libraries: in Registry
  interpreter: in InterpreterSlot
  running: bounded by the first words of one request

ScriptCache crates/core/src/commands/script/cache.rs
  scripts: in Script
  texts: in Script
  evictable: bounded by EVICTABLE_SCRIPTS_MAX
  none: bytes ledger

Script crates/core/src/commands/script/cache.rs
  program: counted scripts.parsed
  text: counted in ScriptCache::bytes
  none: sha known flags scans_values asks_further body charge

Registry crates/core/src/commands/script/library.rs
  libraries: in Library
  functions: counted libraries

Library crates/core/src/commands/script/library.rs
  name: counted libraries
  functions: counted libraries
  text: counted libraries
  none: id asks_further _charge

InterpreterSlot crates/core/src/commands/script/interpreter.rs
  created: in LuaInterpreter
  none: create charge

LuaInterpreter crates/lua/src/lib.rs
  lua: counted lua
  sandbox: counted lua
  libraries: counted lua
  compiled: bounded by COMPILED_MAX
  reply: bounded by REPLY_BYTES_KEPT
  none: budget compiled_bytes

Locks crates/core/src/commands/shared/parts.rs
  waits: counted waits
  lint: in Findings
  none: watch quarantine

Findings crates/core/src/locks/lint.rs
  found: in Finding
  held: in Held
  pairs: bounded by PAIRS_MAX

Finding crates/core/src/locks/lint.rs
  peer: bounded by the length of an address, and FINDINGS_MAX
  names: in Names
  none: count last

Held crates/core/src/locks/lint.rs
  none: key with until

AccessControl crates/core/src/commands/shared/parts.rs
  acl: in Acl
  login_delays: bounded by ADDRESSES_MAX, and a place for each client
  wrong_passwords: bounded by PAIRS_MAX and KEPT_MAX
  none: file audit

Acl crates/core/src/state/acl/mod.rs
  accounts: in Account
  default: in Account
  trusted: in Account
  log: bounded by acllog-max-len and ACL_LOG_BYTES_MAX
  none: is_open ledger

Account crates/core/src/state/acl/mod.rs
  name: counted users
  user: counted users
  none: is_unlimited charge

Statistics crates/core/src/commands/shared/parts.rs
  metrics: in Metrics
  commands: bounded by the commands that there are
  slowlog: bounded by slowlog-max-len, WORDS_MAX and WORD_BYTES_MAX
  latency: bounded by SAMPLES_MAX for each event

Metrics crates/core/src/state/metrics.rs
  error_codes: bounded by CODES_MAX and CODE_BYTES_MAX
  rates: bounded by SAMPLES_KEPT
  none: connections rejected_connections query_limit_disconnections commands input_bytes output_bytes errors denied_auth
  none: denied_certificate denied_command denied_key denied_channel client_bytes peak_bytes

Monitors crates/core/src/state/monitors.rs
  clients: client
  none: is_any

Instance crates/core/src/commands/shared/parts.rs
  run_id: bounded by forty digits
  none: started port tls_port certificates_end probe

Peers crates/core/src/commands/peers.rs
  all: bounded by the nodes
  streams: bounded by the nodes and their waiting clients
  none: slots me members

Testing crates/testing/src/lib.rs
  namespace: bounded by NAME_BYTES_MAX
  faults: in Faults
  recorder: in History
  host: in Namespaces
  holds: bounded by one place for each client
  none: node is_local ledger

Faults crates/testing/src/faults.rs
  list: counted namespaces
  none: len charge

History crates/testing/src/recorder.rs
  events: counted namespaces
  clients: in KnownClient
  none: charge is_full last_id real_micros

KnownClient crates/testing/src/recorder.rs
  name: bounded by NAME_BYTES_MAX
  library: bounded by NAME_BYTES_MAX
  open: bounded by ARGS_MAX and KEY_BYTES_MAX

Namespaces crates/testing/src/namespaces.rs
  by_name: in Entry
  ports: bounded by the nodes
  none: maker runtime ledger

Entry crates/testing/src/namespaces.rs
  namespace: in Namespace
  none: _charge empty_since

Namespace crates/testing/src/namespace.rs
  name: bounded by NAME_BYTES_MAX
  nodes: in Node
  none: clock moving activity auto

Node crates/testing/src/namespace.rs
  shell: counted namespaces
  membership: in Membership

Membership crates/testing/src/namespace.rs
  steps: bounded by one place for each client
  status: in NodeStatus
  none: namespaces namespace node clock activity

NodeStatus crates/testing/src/namespace.rs
  partitions: counted namespaces
  none: is_restricted state charge is_isolated last_crashed

RequestProcessor crates/server/src/processor.rs
  session: in Session
  decoder: bounded by SPANS_KEPT and SCRATCH_BYTES_KEPT between requests
  input: counted in Client::buffer_bytes
  output: counted in Client::buffer_bytes
  faults: bounded by the reply that one fault holds back
  moved: client
  none: context read_bytes written owed state has_more has_begun

HttpContext crates/server/src/http/mod.rs
  names: bounded by the names in http-bind
  viewers: bounded by VIEWERS_MAX and EVENTS_MAX
  probed: bounded by the text of the system
  none: server workers blocking waits denials

Seen crates/server/src/http/sampler.rs
  locks: bounded by LOCKS_MAX and BYTES_MAX
  changed: bounded by LOCKS_MAX and BYTES_MAX
  none: bytes is_cut
";

/// The structs from which all others are reached.
const ROOTS: &[&str] = &["Shared", "RequestProcessor", "HttpContext", "Seen"];
/// Parts of types whose values grow with what clients send.
const GROWING: &[&str] = &[
    "Bytes", "String", "Vec<", "VecDeque<", "Map<", "Set<", "Slab<", "Box<[", "Box<str>", "Arc<str>",
    "ByKey<",
];

/// The fields of a struct in a text as rustfmt leaves it, and their types.
fn fields(text: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let is_head = |line: &str| {
        let bare =
            line.rsplit_once("struct ").filter(|(before, _)| !before.starts_with(' ')).map(|(_, rest)| rest);
        bare.is_some_and(|rest| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '<'])))
    };
    let body = text.lines().skip_while(|line| !is_head(line)).skip(1).take_while(|line| *line != "}");
    let field = |line: &str| {
        let inner = line.strip_prefix("    ").filter(|inner| !inner.starts_with([' ', '/', '#']))?;
        let (left, kind) = inner.split_once(": ")?;
        Some((left.rsplit(' ').next()?.to_owned(), kind.trim_end_matches(',').to_owned()))
    };
    Some(body.filter_map(field).collect::<BTreeMap<_, _>>()).filter(|fields| !fields.is_empty())
}

/// What is wrong with a list of stores, by the sources of its files.
fn mistakes(stores: &str, source: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let (mut wrong, mut reached) = (Vec::new(), ROOTS.iter().copied().collect::<BTreeSet<_>>());
    let blocks: Vec<&str> = stores.split("\n\n").map(str::trim).collect();
    let names: BTreeSet<&str> = blocks.iter().filter_map(|block| block.split(' ').next()).collect();
    for block in &blocks {
        let (head, rows) = block.split_once('\n').expect("a struct has rows");
        let (name, path) = head.split_once(' ').expect("a struct has a file");
        let Some(mut fields) = source(path).and_then(|text| fields(&text, name)) else {
            wrong.push(format!("{path} has no struct {name}"));
            continue;
        };
        for row in rows.lines() {
            let (field, how) = row.trim().split_once(": ").expect("a row has a field");
            let is_none = field == "none";
            for field in if is_none { how.split(' ').collect() } else { vec![field] } {
                match fields.remove(field) {
                    None => wrong.push(format!("{name} has no field {field}")),
                    Some(kind) if is_none && GROWING.iter().any(|part| kind.contains(part)) => {
                        wrong.push(format!("{name}.{field} holds bytes: {kind}"));
                    }
                    Some(_) => {}
                }
            }
            let is_known = match how.split_once(' ') {
                _ if is_none => true,
                Some(("in", inner)) => {
                    reached.insert(inner);
                    names.contains(inner)
                }
                Some(("counted", kind)) if !kind.starts_with("in ") => {
                    Kind::ALL.iter().any(|known| known.name() == kind)
                }
                Some(("counted", _)) => true,
                Some(("bounded", by)) => by.starts_with("by "),
                _ => how == "client",
            };
            if !is_known {
                wrong.push(format!("{name}.{field}: {how}"));
            }
        }
        wrong.extend(fields.keys().map(|field| format!("{name}.{field} is not listed")));
    }
    reached.insert("Client");
    wrong.extend(
        reached.symmetric_difference(&names).map(|name| format!("{name} is not listed, or not reached")),
    );
    wrong
}

#[test]
fn each_field_that_a_server_keeps_is_counted_or_bounded() {
    let text =
        |path: &str| sources().iter().find(|source| source.path == path).map(|source| source.text.clone());
    let wrong = mistakes(STORES, text);
    assert!(wrong.is_empty(), "list them in {}:\n{}", file!(), wrong.join("\n"));
}

#[test]
fn a_store_that_is_forgotten_is_seen() {
    let text =
        |path: &str| sources().iter().find(|source| source.path == path).map(|source| source.text.clone());
    let with = |store: &'static str| {
        move |path: &str| {
            Some(text(path)?.replace("struct Locks {\n", &format!("struct Locks {{\n    {store},\n")))
        }
    };
    assert_eq!(mistakes(STORES, with("pub(crate) notes: Vec<Bytes>")), ["Locks.notes is not listed"]);
    let listed = STORES.replace("none: watch quarantine", "none: watch quarantine notes");
    let wrong = mistakes(&listed, with("pub notes: Mutex<Vec<Bytes>>"));
    assert_eq!(wrong, ["Locks.notes holds bytes: Mutex<Vec<Bytes>>"]);
    assert_eq!(mistakes(&listed, text), ["Locks has no field notes"]);
}

#[test]
fn each_kind_of_the_ledger_has_a_store() {
    // The ends of locks are in the shards.
    let is_listed =
        |kind: &Kind| STORES.contains(&format!("counted {}\n", kind.name())) || *kind == Kind::LockHistory;
    let missing: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !is_listed(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
