//! A cluster in etcd: the names of its keys, what its nodes agree on, and who they are.
//!
//! Owns    the keys under the prefix, and the texts of `cluster` and `epoch`.
//! Rule    a text is lines of a name and a value, so that people can read it with etcdctl. Another first line, or a newer
//!         version, is refused: a node never leads a log that it does not understand.

use bytes::Bytes;

use super::etcd::{Compare, Etcd, EtcdError, KeyValue, Operation, Transaction};
use super::standby::first;
use crate::journal::item;
use crate::state::node_key::NodeKey;

/// The version of what is in etcd that this program writes, and the newest that it reads.
pub(crate) const VERSION: u32 = 1;
/// The beginning of the first line of `cluster`. The version follows.
const FIRST_LINE: &str = "redlatch cluster ";
/// What `cluster` begins with while the journal of a server is being put there.
pub(super) const ARRIVING: &str = "arriving ";
/// What `cluster` begins with once its locks are in the journal of a server.
pub(super) const LEAVING: &str = "leaving ";
/// Why no node joins a cluster then.
pub(super) const LEFT: &str = "its locks were moved away, by 'redlatch cluster export': if that was interrupted, run \
                               it again with the same 'dir'";
/// The first line of an `epoch` that nobody owns.
const RELEASED: &str = "released";

/// The names of the keys under a prefix.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// The keys under this prefix, which usually ends with a slash.
    pub fn under(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The keys of this part of the cluster under a prefix: those of several groups have their numbers behind it.
    pub fn of(prefix: &str, part: Part) -> Self {
        match part.groups {
            1 => Self::under(prefix),
            _ => Self::under(&format!("{prefix}{}/", part.group)),
        }
    }

    /// What the nodes agree on.
    pub fn cluster(&self) -> Bytes {
        self.named("cluster")
    }

    /// Who leads. The revision of its last change is the fence of the leader's commits.
    pub fn epoch(&self) -> Bytes {
        self.named("epoch")
    }

    /// Which process has put the epoch, and how often the log had been restored then. After a restore, etcd gives the same
    /// revisions out again: this tells a term from one before.
    pub fn term(&self) -> Bytes {
        self.named("term")
    }

    /// The sequence number of the next entry of the log.
    pub fn head(&self) -> Bytes {
        self.named("head")
    }

    /// An entry of the log.
    pub fn log(&self, sequence: u64) -> Bytes {
        self.named(&format!("log/{sequence:016x}"))
    }

    /// The id of the etcd that the log is in, as etcd calls itself.
    pub fn etcd(&self) -> Bytes {
        self.named("etcd")
    }

    /// Whether the log is an older state of itself, and how often it was.
    pub fn restored(&self) -> Bytes {
        self.named("restored")
    }

    /// The key by which nodes prove to each other that they are nodes.
    pub fn node_key(&self) -> Bytes {
        self.named("node-key")
    }

    /// The end of the keys of the log.
    pub(super) fn log_end(&self) -> Bytes {
        // The byte behind the slash.
        self.named("log0")
    }

    /// The sequence number of an entry of the log.
    pub(super) fn sequence_of(&self, key: &[u8]) -> Option<u64> {
        let digits = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b"log/")?;
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }

    /// The entry of a node in the list of all nodes.
    pub fn node(&self, id: &str) -> Bytes {
        self.named(&format!("node/{id}"))
    }

    /// Whether the export with this id has ended: the locks are in its directory.
    pub fn exported(&self, id: &str) -> Bytes {
        self.named(&format!("exported/{id}"))
    }

    /// The first key of the list of all nodes, and the key behind the last.
    pub fn nodes(&self) -> (Bytes, Bytes) {
        (self.named("node/"), self.named("node0"))
    }

    fn named(&self, name: &str) -> Bytes {
        format!("{}{name}", self.prefix).into()
    }
}

/// What every node of a cluster must be started with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Agreed {
    /// How long the log stands still before another node takes over, in milliseconds.
    pub takeover_ms: u64,
    pub databases: u16,
    pub part: Part,
}

/// What a log has of the keys: a group of slots, of how many.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Part {
    /// From 0 on.
    pub group: u16,
    pub groups: u16,
}

impl Default for Part {
    /// All keys.
    fn default() -> Self {
        Self { group: 0, groups: 1 }
    }
}

impl Part {
    /// Its line in the text of `cluster`; a log with all keys has none.
    fn line(self) -> String {
        let Self { group, groups } = self;
        if groups == 1 { String::new() } else { format!("group {group} of {groups}\n") }
    }

    fn parse(line: &str) -> Option<Self> {
        let (group, groups) = line.strip_prefix("group ")?.split_once(" of ")?;
        Some(Self { group: group.parse().ok()?, groups: groups.parse().ok()? })
    }
}

/// A cluster that a node has joined.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cluster {
    /// The names of its keys.
    pub keys: Keys,
    /// Its id, which the first node has chosen.
    pub id: [u8; 20],
    /// What its nodes agree on.
    pub agreed: Agreed,
    /// The text of `cluster`.
    text: Bytes,
}

/// Why a node cannot join a cluster.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JoinError {
    /// The text of `cluster` is of a newer version.
    #[error("the cluster is of version {0}, and this program reads versions up to {VERSION}")]
    Newer(u32),
    /// The keys are not those of a cluster of redlatch.
    #[error("the prefix is used for something else: {0}")]
    Foreign(String),
    /// The locks are on their way: see [`super::moving`].
    #[error("{0}")]
    Moving(&'static str),
    /// A setting of this node is not that of the cluster.
    #[error("the cluster has {name} {theirs}, and this node {ours}")]
    Differs {
        /// The name of the setting.
        name: &'static str,
        theirs: u64,
        ours: u64,
    },
    /// etcd has not answered, or has refused. To try again is safe.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

impl Cluster {
    /// Joins the cluster under this prefix. If there is none it is founded, with this id.
    ///
    /// # Errors
    /// [`JoinError`]
    pub fn join(etcd: &dyn Etcd, keys: Keys, agreed: Agreed, new_id: [u8; 20]) -> Result<Self, JoinError> {
        let read = |key| Operation::Read { key, end: None, limit: 1 };
        let absent = |key| Compare::ModRevision { key, revision: 0 };
        let founded = Self::text_of(new_id, &agreed);
        let all = [keys.cluster(), keys.epoch(), keys.head()];
        let then = vec![read(keys.cluster())];
        if first(&etcd.transact(&Transaction { then, ..Transaction::default() })?, 0).is_none() {
            find_overlap(etcd, &keys, agreed.part)?;
        }
        let answer = etcd.transact(&Transaction {
            conditions: all.clone().map(absent).to_vec(),
            then: vec![Operation::Put { key: keys.cluster(), value: founded.clone() }],
            otherwise: all.map(read).to_vec(),
        })?;
        if answer.has_succeeded {
            return Ok(Self { keys, id: new_id, agreed, text: founded });
        }
        let Some(KeyValue { value: text, .. }) = answer.reads.first().and_then(|found| found.first()) else {
            return Err(JoinError::Foreign("there is an epoch or a head, and no cluster".to_owned()));
        };
        Self::agreed_on(keys, text.clone(), Self::parse(text)?, agreed)
    }

    /// The key by which its nodes know each other. If there is none, it is this one from now on.
    ///
    /// # Errors
    /// [`JoinError`]
    pub fn node_key(&self, etcd: &dyn Etcd, new: [u8; 20]) -> Result<NodeKey, JoinError> {
        let key = self.keys.node_key();
        let answer = etcd.transact(&Transaction {
            conditions: vec![Compare::ModRevision { key: key.clone(), revision: 0 }],
            then: vec![Operation::Put { key: key.clone(), value: item::id_text(&new).into() }],
            otherwise: vec![Operation::Read { key, end: None, limit: 1 }],
        })?;
        let found = first(&answer, 0)
            .map_or(Some(new), |found| std::str::from_utf8(&found.value).ok().and_then(item::parse_id));
        found.map(NodeKey::new).ok_or_else(|| JoinError::Foreign("node-key is no key".to_owned()))
    }

    /// The cluster of this text, which says this, if that is what the node is started with.
    pub(super) fn agreed_on(
        keys: Keys,
        text: Bytes,
        (id, theirs): ([u8; 20], Agreed),
        agreed: Agreed,
    ) -> Result<Self, JoinError> {
        for (name, theirs, ours) in [
            ("cluster-takeover", theirs.takeover_ms, agreed.takeover_ms),
            ("databases", theirs.databases.into(), agreed.databases.into()),
            (GROUPS, theirs.part.groups.into(), agreed.part.groups.into()),
            ("group", theirs.part.group.into(), agreed.part.group.into()),
        ] {
            if theirs != ours {
                return Err(JoinError::Differs { name, theirs, ours });
            }
        }
        Ok(Self { keys, id, agreed, text })
    }

    /// The text of `cluster`.
    pub(super) fn text(&self) -> &Bytes {
        &self.text
    }

    /// The condition that the keys are still those of this cluster.
    pub(super) fn is_unchanged(&self) -> Compare {
        Compare::Value { key: self.keys.cluster(), value: self.text.clone() }
    }

    /// Whether this is what etcd has under `cluster`.
    pub(super) fn is(&self, found: Option<&KeyValue>) -> bool {
        found.is_some_and(|found| found.value == self.text)
    }

    pub(super) fn text_of(id: [u8; 20], agreed: &Agreed) -> Bytes {
        let id = item::id_text(&id);
        let Agreed { takeover_ms, databases, part } = agreed;
        let text = format!("{FIRST_LINE}{VERSION}\nid {id}\ntakeover {takeover_ms}\ndatabases {databases}\n");
        (text + &part.line()).into()
    }

    pub(super) fn parse(text: &[u8]) -> Result<([u8; 20], Agreed), JoinError> {
        if text.starts_with(ARRIVING.as_bytes()) {
            return Err(JoinError::Moving(
                "the locks of a server are being moved here: 'redlatch cluster import' has not ended: run it again",
            ));
        }
        if text.starts_with(LEAVING.as_bytes()) {
            return Err(JoinError::Moving(LEFT));
        }
        let shown = String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES)]).into_owned();
        let foreign = || JoinError::Foreign(format!("cluster is {shown:?}"));
        let text = std::str::from_utf8(text).map_err(|_| foreign())?;
        let mut lines = text.lines();
        let version = lines.next().and_then(|line| line.strip_prefix(FIRST_LINE)?.parse().ok());
        match version {
            Some(VERSION) => {}
            Some(version) if version > VERSION => return Err(JoinError::Newer(version)),
            _ => return Err(foreign()),
        }
        let mut parsed = || {
            let mut value_of = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
            let id = item::parse_id(value_of("id")?)?;
            let takeover_ms = value_of("takeover")?.parse().ok()?;
            let databases = value_of("databases")?.parse().ok()?;
            let part = lines.next().map_or(Some(Part::default()), Part::parse)?;
            Some((id, Agreed { takeover_ms, databases, part }))
        };
        parsed().ok_or_else(foreign)
    }
}

/// The name of the setting for [`Part::groups`].
const GROUPS: &str = "cluster-groups";

/// How many groups share the keys of the cluster under this prefix; 1 if there is none.
///
/// # Errors
/// etcd has not answered, or has refused.
pub fn groups_under(etcd: &dyn Etcd, prefix: &str) -> Result<u16, EtcdError> {
    // Of several groups, whatever their number, the first one is at the same key.
    let first_of = |groups| Keys::of(prefix, Part { group: 0, groups }).cluster();
    let then = [1, 2].map(|groups| Operation::Read { key: first_of(groups), end: None, limit: 1 });
    let answer = etcd.transact(&Transaction { then: then.into(), ..Transaction::default() })?;
    let agreed = [0, 1].into_iter().find_map(|read| Cluster::parse(&first(&answer, read)?.value).ok());
    Ok(agreed.map_or(1, |(_, agreed)| agreed.part.groups))
}

/// Looks for a cluster whose prefix is the beginning of this one, or begins with it.
///
/// # Errors
/// There is one; or etcd has not answered.
pub(super) fn find_overlap(etcd: &dyn Etcd, keys: &Keys, part: Part) -> Result<(), JoinError> {
    // Another node may have founded this one meanwhile.
    let own = keys.cluster();
    let is_cluster = |found: &&KeyValue| found.key != own && found.value.starts_with(FIRST_LINE.as_bytes());
    let shared = keys.prefix.strip_suffix(&Keys::of("", part).prefix).unwrap_or(&keys.prefix);
    let overlap = |found: &KeyValue| {
        let theirs = Cluster::parse(&found.value).map(|(_, agreed)| agreed.part);
        if let Ok(theirs) = theirs
            && Keys::of(shared, theirs).cluster() == found.key
        {
            return JoinError::Differs {
                name: GROUPS,
                theirs: theirs.groups.into(),
                ours: part.groups.into(),
            };
        }
        let other = String::from_utf8_lossy(&found.key);
        let other = other.strip_suffix("cluster").unwrap_or(&other);
        JoinError::Foreign(format!(
            "another cluster has the prefix '{other}', and none may be the beginning of another"
        ))
    };
    let (first, end) = (Bytes::from(keys.prefix.clone()), keys.named("\u{7f}"));
    let below = Operation::Read { key: first, end: Some(end), limit: BELOW_MAX };
    let answer = etcd.transact(&Transaction { then: vec![below], ..Transaction::default() })?;
    if let Some(found) = answer.reads.iter().flatten().find(is_cluster) {
        return Err(overlap(found));
    }
    let beginnings = (0..keys.prefix.len()).filter_map(|end| keys.prefix.get(..end));
    let above: Vec<_> = beginnings
        .map(|prefix| Operation::Read { key: Keys::under(prefix).cluster(), end: None, limit: 1 })
        .collect();
    for then in above.chunks(OPERATIONS_MAX) {
        let answer = match etcd.transact(&Transaction { then: then.to_vec(), ..Transaction::default() }) {
            // The login of this node may read keys of its own prefix alone.
            Err(EtcdError::Refused(_)) => return Ok(()),
            answer => answer?,
        };
        if let Some(found) = answer.reads.iter().flatten().find(is_cluster) {
            return Err(overlap(found));
        }
    }
    Ok(())
}

/// Keys below a prefix that are looked at.
const BELOW_MAX: u32 = 1_000;
/// Operations of a transaction: etcd takes 128.
const OPERATIONS_MAX: usize = 100;

/// Bytes of a foreign text that an error shows.
const SHOWN_BYTES: usize = 64;

/// A node, as the others know it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// Its id, which no other process ever has: 40 hexadecimal digits, for example.
    pub id: String,
    /// Where it listens, with the port. Neither these nor the id have a line break.
    pub addresses: Vec<String>,
}

impl Member {
    /// The text of `epoch` if nobody leads; else that of the leader.
    pub(super) fn epoch_text(leader: Option<&Self>) -> Bytes {
        let Some(Self { id, addresses }) = leader else { return Bytes::from_static(RELEASED.as_bytes()) };
        let lines = addresses.iter().map(|address| format!("\naddress {address}"));
        format!("leader {id}{}", lines.collect::<String>()).into()
    }

    /// The leader by the text of `epoch`. `None`: nobody leads.
    ///
    /// # Errors
    /// It is no such text.
    pub(super) fn in_epoch(text: &[u8]) -> Result<Option<Self>, NotAnEpoch> {
        if text == RELEASED.as_bytes() {
            return Ok(None);
        }
        let text = std::str::from_utf8(text).map_err(|_| NotAnEpoch)?;
        let mut lines = text.lines();
        let id = lines.next().and_then(|line| line.strip_prefix("leader ")).ok_or(NotAnEpoch)?.to_owned();
        let address = |line: &str| line.strip_prefix("address ").map(str::to_owned).ok_or(NotAnEpoch);
        Ok(Some(Self { id, addresses: lines.map(address).collect::<Result<_, _>>()? }))
    }
}

/// The text of `epoch` is that of another program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NotAnEpoch;
