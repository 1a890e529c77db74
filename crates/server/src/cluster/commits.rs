//! The commits of all groups that a node leads: those that come while others are on their way share a call.
//!
//! Owns    the commits that have not been sent.
//! Rule    a commit is sent at once unless [`CALLS_MAX`] calls are on their way, then with all that wait when one ends.
//! Rule    in a call, each commit is a transaction with its own conditions and its own answer: one that fails keeps none of
//!         the others from being carried out. A call that etcd refuses is sent again as one for each commit.
//! Why     each call costs the node and etcd a third of a millisecond, however little it carries.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use redlatch_core::replication::etcd::{Answer, EtcdError, Operation, Transaction};
use redlatch_core::replication::term::ENTRY_BYTES_MAX;
use tokio::sync::oneshot;

use super::rpc::{TxnRequest, TxnResponse};

/// How many calls are on their way at most. With one, a large commit keeps all groups waiting. docs/cluster-groups.md
/// has the times with one, two and any number.
const CALLS_MAX: usize = 2;
/// How many commits share a call at most: half of what etcd takes unless it is told otherwise, `--max-txn-ops`.
const COMMITS_MAX: usize = 64;

/// The commits that wait. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Commits(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Commit>,
    /// How many calls are on their way.
    calls: usize,
}

#[derive(Debug)]
struct Commit {
    transaction: Transaction,
    answered: oneshot::Sender<Result<Answer, EtcdError>>,
}

/// One of the calls that may be on their way. If it is dropped before it is over, its runtime is gone, and so is what waits.
#[derive(Debug)]
pub(super) struct Turn {
    commits: Commits,
    is_over: bool,
}

impl Commits {
    /// Adds a commit. Returns where its answer arrives, and the turn to [`Turn::send`] it in, unless all are taken.
    pub(super) fn add(
        &self,
        transaction: Transaction,
    ) -> (oneshot::Receiver<Result<Answer, EtcdError>>, Option<Turn>) {
        let (answered, answer) = oneshot::channel();
        let mut state = self.0.lock();
        state.waiting.push_back(Commit { transaction, answered });
        if state.calls == CALLS_MAX {
            return (answer, None);
        }
        state.calls += 1;
        (answer, Some(Turn { commits: self.clone(), is_over: false }))
    }
}

impl Turn {
    /// Sends what waits by `call`, one call after the other, until nothing does.
    pub(super) async fn send<F>(mut self, call: impl Fn(TxnRequest) -> F)
    where
        F: Future<Output = Result<TxnResponse, EtcdError>>,
    {
        while let Some(commits) = self.next() {
            let joined = match &commits[..] {
                [_] => None,
                _ => Some(call(TxnRequest::of_all(commits.iter().map(|commit| &commit.transaction))).await),
            };
            match joined {
                // Refused for one of them, perhaps.
                None | Some(Err(EtcdError::Refused(_))) => {
                    for commit in commits {
                        let answer = call(TxnRequest::from(&commit.transaction)).await;
                        commit.tell(answer.map(Answer::from));
                    }
                }
                Some(Ok(answer)) => {
                    let missing = || Err(EtcdError::Unknown("an answer without that of a commit".to_owned()));
                    let mut answers = answer.into_all().into_iter();
                    for commit in commits {
                        commit.tell(answers.next().map_or_else(missing, Ok));
                    }
                }
                Some(Err(error)) => commits.into_iter().for_each(|commit| commit.tell(Err(error.clone()))),
            }
        }
    }

    /// The commits of the next call. `None`: none waits, and the turn is over.
    fn next(&mut self) -> Option<Vec<Commit>> {
        let mut state = self.commits.0.lock();
        let (mut count, mut bytes) = (0, 0);
        for commit in state.waiting.iter().take(COMMITS_MAX) {
            bytes += commit.bytes();
            if count > 0 && bytes > ENTRY_BYTES_MAX {
                break;
            }
            count += 1;
        }
        if count == 0 {
            state.calls -= 1;
            self.is_over = true;
            return None;
        }
        Some(state.waiting.drain(..count).collect())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.commits.0.lock();
            state.calls -= 1;
            state.waiting.clear();
        }
    }
}

impl Commit {
    /// Bytes of the values that it writes.
    fn bytes(&self) -> usize {
        let written = |operation: &Operation| match operation {
            Operation::Put { value, .. } => value.len(),
            Operation::Delete { .. } | Operation::Read { .. } => 0,
        };
        self.transaction.then.iter().map(written).sum()
    }

    fn tell(self, answer: Result<Answer, EtcdError>) {
        // The caller waits for ever, or its runtime is gone.
        let _ = self.answered.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::ready;

    use bytes::Bytes;
    use prost::Message;

    use super::*;

    type Waiting = oneshot::Receiver<Result<Answer, EtcdError>>;

    /// A commit that writes so many bytes.
    fn commit(bytes: usize) -> Transaction {
        let put = Operation::Put { key: Bytes::from_static(b"a"), value: vec![b'x'; bytes].into() };
        Transaction { then: vec![put], ..Transaction::default() }
    }

    /// Commits of these sizes, of which the first has a turn, and the others have come while all were taken.
    fn waiting(sizes: &[usize]) -> (Turn, Vec<Waiting>) {
        let commits = Commits::default();
        commits.0.lock().calls = CALLS_MAX - 1;
        let (mut turns, mut answers) = (Vec::new(), Vec::new());
        for bytes in sizes {
            let (answer, turn) = commits.add(commit(*bytes));
            turns.extend(turn);
            answers.push(answer);
        }
        assert_eq!(turns.len(), 1);
        (turns.remove(0), answers)
    }

    /// What is sent in a turn; `answer` says what etcd says to each.
    async fn sent(turn: Turn, answer: impl Fn(usize) -> Result<TxnResponse, EtcdError>) -> Vec<TxnRequest> {
        let (sent, commits) = (RefCell::new(Vec::new()), turn.commits.clone());
        let call = |request| {
            sent.borrow_mut().push(request);
            ready(answer(sent.borrow().len()))
        };
        turn.send(call).await;
        assert_eq!(commits.0.lock().calls, CALLS_MAX - 1);
        sent.into_inner()
    }

    fn of_all(sizes: &[usize]) -> TxnRequest {
        TxnRequest::of_all(sizes.iter().map(|bytes| commit(*bytes)).collect::<Vec<_>>().iter())
    }

    fn alone(bytes: usize) -> TxnRequest {
        TxnRequest::from(&commit(bytes))
    }

    fn refused() -> EtcdError {
        EtcdError::Refused("too many operations".to_owned())
    }

    #[tokio::test]
    async fn commits_that_wait_share_a_call_and_each_has_its_own_answer() {
        let (turn, mut answers) = waiting(&[1, 2, 3]);
        let header = b"\x0a\x04\x08\x07\x18\x09";
        let (succeeded, failed) = (b"\x1a\x04\x22\x02\x10\x01", b"\x1a\x02\x22\x00");
        let bytes = [&header[..], b"\x10\x01", succeeded, failed].concat();
        let answer = |_| Ok(TxnResponse::decode(&bytes[..]).unwrap());
        assert_eq!(sent(turn, answer).await, [of_all(&[1, 2, 3])]);
        let common = Answer { etcd: 7, revision: 9, ..Answer::default() };
        assert_eq!(answers[0].try_recv(), Ok(Ok(Answer { has_succeeded: true, ..common.clone() })));
        assert_eq!(answers[1].try_recv(), Ok(Ok(common)));
        assert!(matches!(answers[2].try_recv(), Ok(Err(EtcdError::Unknown(_)))));
    }

    #[tokio::test]
    async fn a_call_carries_no_more_than_etcd_takes() {
        let (turn, _answers) = waiting(&[ENTRY_BYTES_MAX, 1, ENTRY_BYTES_MAX - 1, 2]);
        let answer = |_| Ok(TxnResponse::default());
        let expected = [alone(ENTRY_BYTES_MAX), of_all(&[1, ENTRY_BYTES_MAX - 1]), alone(2)];
        assert_eq!(sent(turn, answer).await, expected);
        let (turn, _answers) = waiting(&[1; COMMITS_MAX + 1]);
        assert_eq!(sent(turn, answer).await, [of_all(&[1; COMMITS_MAX]), alone(1)]);
    }

    #[tokio::test]
    async fn a_refused_call_is_sent_again_for_each_commit() {
        let (turn, mut answers) = waiting(&[1, 2]);
        let answer = |number| match number {
            1 | 3 => Err(refused()),
            _ => Ok(TxnResponse::default()),
        };
        assert_eq!(sent(turn, answer).await, [of_all(&[1, 2]), alone(1), alone(2)]);
        assert_eq!(answers[0].try_recv(), Ok(Ok(Answer::default())));
        assert_eq!(answers[1].try_recv(), Ok(Err(refused())));
    }

    #[tokio::test]
    async fn nobody_knows_whether_a_lost_call_was_carried_out() {
        let (turn, mut answers) = waiting(&[1, 2]);
        let lost = EtcdError::Unknown("no answer in time".to_owned());
        assert_eq!(sent(turn, |_| Err(lost.clone())).await, [of_all(&[1, 2])]);
        assert_eq!(answers[0].try_recv(), Ok(Err(lost.clone())));
        assert_eq!(answers[1].try_recv(), Ok(Err(lost)));
    }

    #[test]
    fn a_commit_goes_at_once_while_few_calls_are_on_their_way() {
        let commits = Commits::default();
        let added = [1, 2, 3].map(|_| commits.add(commit(1)));
        assert_eq!(added.map(|(_, turn)| turn.is_some()), [true, true, false]);
    }

    #[test]
    fn what_waits_is_told_when_the_runtime_of_the_calls_ends() {
        let (turn, mut answers) = waiting(&[1, 2]);
        let commits = turn.commits.clone();
        drop(turn.send(|_| ready(Ok(TxnResponse::default()))));
        for answer in &mut answers {
            assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        }
        assert_eq!(commits.0.lock().calls, CALLS_MAX - 1);
    }
}
