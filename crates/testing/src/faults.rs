//! The faults of a namespace: which requests they have met, and at which they have acted.
//!
//! Owns    [`Faults`], shared by the nodes of a namespace.
//! Rule    every fault counts every request that fits its conditions, also one at which another fault acts.
//! Rule    without faults, a request costs one load and one branch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use redlatch_core::state::clients::Client;
use redlatch_core::state::ledger::{Charge, Kind, Ledger};
use redlatch_proto::error::Refusal;

use super::rule::{Action, Asked, Rule};

/// Faults of one namespace.
pub const FAULTS_MAX: usize = 1000;

/// The faults of a namespace.
#[derive(Debug)]
pub struct Faults {
    list: Mutex<List>,
    /// The number of faults.
    len: AtomicUsize,
    /// Their memory.
    charge: Charge,
}

#[derive(Debug, Default)]
struct List {
    faults: Vec<Fault>,
    last_id: u64,
}

/// A fault and its counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Its number, from 1 on. It is never reused.
    pub id: u64,
    /// What it does.
    pub rule: Rule,
    /// Requests that fitted its conditions.
    pub met: u64,
    /// Requests at which it acted.
    pub hits: u64,
}

/// A fault that acts at a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hit {
    /// The number of the fault.
    pub id: u64,
    /// What it does.
    pub action: Action,
}

impl Default for Faults {
    fn default() -> Self {
        Self::new(&Arc::default())
    }
}

impl Faults {
    /// No fault yet. Their memory is charged to `ledger`.
    pub fn new(ledger: &Arc<Ledger>) -> Self {
        let (list, len) = Default::default();
        Self { list, len, charge: ledger.open(Kind::Namespaces) }
    }

    /// The list has changed.
    fn note(&self, List { faults, .. }: &List) {
        self.len.store(faults.len(), Relaxed);
        self.charge.set(faults.iter().map(|fault| size_of::<Fault>() + fault.rule.to_string().len()).sum());
    }

    /// Adds a fault behind the others. Returns its number.
    ///
    /// # Errors
    /// There are [`FAULTS_MAX`].
    pub fn add(&self, rule: Rule) -> Result<u64, Refusal> {
        let mut list = self.list.lock();
        if list.faults.len() >= FAULTS_MAX {
            return Err(Refusal::said(format!(
                "ERR a namespace has {FAULTS_MAX} faults at most; TEST.FAULT CLEAR removes them"
            )));
        }
        list.last_id += 1;
        let id = list.last_id;
        list.faults.push(Fault { id, rule, met: 0, hits: 0 });
        self.note(&list);
        Ok(id)
    }

    /// Removes a fault; false if there is none of this number.
    pub fn remove(&self, id: u64) -> bool {
        let mut list = self.list.lock();
        let before = list.faults.len();
        list.faults.retain(|fault| fault.id != id);
        self.note(&list);
        list.faults.len() < before
    }

    /// Removes all faults. Returns how many there were.
    pub fn clear(&self) -> usize {
        let mut list = self.list.lock();
        let faults = std::mem::take(&mut list.faults);
        self.note(&list);
        faults.len()
    }

    /// All faults, in the order in which they were added.
    pub fn all(&self) -> Vec<Fault> {
        self.list.lock().faults.clone()
    }

    /// Whether there are no faults.
    pub fn is_empty(&self) -> bool {
        self.len.load(Relaxed) == 0
    }

    /// A client of a node sends a request: the first fault whose turn it is acts. `requests` are the request and what EXEC
    /// would execute for it.
    pub fn meet(&self, client: &Client, node: u16, requests: &[Asked<'_>]) -> Option<Hit> {
        let mut hit = None;
        for fault in &mut self.list.lock().faults {
            if !fault.rule.conditions.fit(client, node, requests) {
                continue;
            }
            fault.met += 1;
            let may_act = fault.rule.times.is_none_or(|times| fault.hits < times);
            if hit.is_none() && may_act && fault.rule.turn.comes(fault.met) {
                fault.hits += 1;
                hit = Some(Hit { id: fault.id, action: fault.rule.action.clone() });
            }
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::rule::{AskedScript, Conditions, Script, Turn};
    use redlatch_core::scripts::KNOWN;
    use redlatch_proto::clock::LockTime;

    fn client() -> Client {
        let client =
            Client::new(7, "10.0.0.7:5000".to_owned(), String::new(), false, LockTime::from_millis(1));
        client.names.lock().name = "worker-1".to_owned();
        client.names.lock().library = "redis-py".to_owned();
        client
    }

    fn rule(conditions: Conditions, turn: Turn, times: Option<u64>) -> Rule {
        Rule { conditions, turn, times, action: Action::DropAfter }
    }

    fn asked<'a>(command: &'a str, keys: &'a [&'a [u8]]) -> Asked<'a> {
        Asked { command, keys, script: None }
    }

    fn meets(conditions: Conditions, request: Asked<'_>) -> bool {
        let faults = Faults::default();
        faults.add(rule(conditions, Turn::Each, None)).unwrap();
        faults.meet(&client(), 1, &[request]).is_some()
    }

    /// At which of the first 12 requests the fault acts.
    fn turns(turn: Turn, times: Option<u64>) -> Vec<u64> {
        let faults = Faults::default();
        faults.add(rule(Conditions::default(), turn, times)).unwrap();
        (1..=12).filter(|_| faults.meet(&client(), 1, &[asked("set", &[])]).is_some()).collect()
    }

    #[test]
    fn all_conditions_must_fit() {
        let key =
            |pattern: &'static str| Conditions { key: Some(Bytes::from(pattern)), ..Conditions::default() };
        let keys: &[&[u8]] = &[b"a", b"lock:1"];
        assert!(meets(Conditions::default(), asked("", &[])));
        assert!(meets(key("lock:*"), asked("del", keys)));
        assert!(!meets(key("lock"), asked("del", keys)));
        assert!(!meets(key("*"), asked("ping", &[])));
        let set = Conditions { command: Some("set".into()), ..key("lock:*") };
        assert!(meets(set.clone(), asked("set", keys)));
        assert!(!meets(set.clone(), asked("setnx", keys)));
        assert!(!meets(Conditions { node: Some(2), ..set }, asked("set", keys)));
    }

    #[test]
    fn a_container_stands_for_its_subcommands() {
        let of = |name: &str| Conditions { command: Some(name.into()), ..Conditions::default() };
        assert!(meets(of("config"), asked("config|get", &[])));
        assert!(meets(of("config|get"), asked("config|get", &[])));
        assert!(!meets(of("config|get"), asked("config|set", &[])));
        assert!(!meets(of("config|get"), asked("config", &[])));
    }

    #[test]
    fn a_client_is_known_by_its_name_its_library_or_its_address() {
        for (pattern, fits) in
            [("worker-*", true), ("redis-py", true), ("10.0.0.*", true), ("worker", false), ("", false)]
        {
            let conditions = Conditions { client: Some(Bytes::from(pattern)), ..Conditions::default() };
            assert_eq!(meets(conditions, asked("set", &[])), fits, "{pattern}");
        }
    }

    #[test]
    fn a_script_is_known_by_its_sha_or_its_purpose() {
        let release = KNOWN.iter().find(|known| super::super::rule::purpose_name(known.purpose) == "release");
        let sha = release.unwrap().sha1;
        let upper = sha.to_ascii_uppercase();
        let runs = |word: &str, script| {
            let conditions =
                Conditions { script: Some(Script::of(word.as_bytes()).unwrap()), ..Conditions::default() };
            meets(conditions, Asked { command: "evalsha", keys: &[], script })
        };
        assert!(runs(&upper, Some(AskedScript::Sha(sha.as_bytes()))));
        assert!(runs("RELEASE", Some(AskedScript::Sha(upper.as_bytes()))));
        assert!(!runs("acquire", Some(AskedScript::Sha(sha.as_bytes()))));
        assert!(!runs("release", Some(AskedScript::Text(b"return 1"))));
        assert!(!runs("release", None));
        let own = String::from_utf8(redlatch_core::scripts::digest(b"return 1").to_vec()).unwrap();
        assert!(runs(&own, Some(AskedScript::Text(b"return 1"))));
        assert_eq!(Script::of(b"unlock"), None);
    }

    #[test]
    fn a_fault_acts_in_its_turn_and_so_often() {
        assert_eq!(turns(Turn::Each, Some(2)), [1, 2]);
        assert_eq!(turns(Turn::Nth(3), None), [3]);
        assert_eq!(turns(Turn::Every(5), None), [5, 10]);
        assert_eq!(turns(Turn::Every(5), Some(1)), [5]);
        let share = |share, seed| turns(Turn::Share { share, seed }, None);
        assert_eq!(share(0.5, 7), share(0.5, 7), "a seed decides");
        assert_ne!(share(0.5, 7), share(0.5, 8));
        assert!(share(0.0, 7).is_empty());
        assert_eq!(share(1.0, 7).len(), 12);
    }

    #[test]
    fn a_share_of_many_requests_is_about_that_share() {
        let hits = (1..=10_000).filter(|met| Turn::Share { share: 0.3, seed: -5 }.comes(*met)).count();
        assert!((2_850..=3_150).contains(&hits), "{hits}");
    }

    #[test]
    fn the_first_fault_whose_turn_it_is_acts_and_all_count() {
        let faults = Faults::default();
        faults.add(rule(Conditions::default(), Turn::Nth(1), None)).unwrap();
        faults.add(rule(Conditions::default(), Turn::Each, None)).unwrap();
        let met = || faults.meet(&client(), 1, &[asked("set", &[])]).unwrap().id;
        assert_eq!([met(), met(), met()], [1, 2, 2]);
        let counted: Vec<_> = faults.all().iter().map(|fault| (fault.met, fault.hits)).collect();
        assert_eq!(counted, [(3, 1), (3, 2)]);
    }

    #[test]
    fn exec_is_met_once_with_what_it_executes() {
        let conditions = Conditions { command: Some("set".into()), ..Conditions::default() };
        let faults = Faults::default();
        faults.add(rule(conditions, Turn::Nth(1), None)).unwrap();
        let requests = [asked("exec", &[]), asked("set", &[]), asked("set", &[])];
        assert!(faults.meet(&client(), 1, &requests).is_some());
        assert_eq!(faults.all()[0].met, 1);
    }

    #[test]
    fn numbers_are_never_reused_and_their_count_is_bounded() {
        let faults = Faults::default();
        let add = || faults.add(rule(Conditions::default(), Turn::Each, None));
        assert_eq!((add(), add()), (Ok(1), Ok(2)));
        assert!(faults.remove(2) && !faults.remove(2));
        assert_eq!(add(), Ok(3));
        assert_eq!(faults.clear(), 2);
        assert!(faults.is_empty());
        assert_eq!(add(), Ok(4));
        (0..100_000).for_each(|_| _ = add());
        assert_eq!((faults.all().len(), add().is_err()), (FAULTS_MAX, true));
        assert_eq!(faults.all()[FAULTS_MAX - 1].id, FAULTS_MAX as u64 + 3, "a refused fault takes no number");
    }
}
