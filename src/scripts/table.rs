//! The table of recognised scripts: a shape, who sends it, and the program that it lands on.
//!
//! Owns    the rows, the index over their shapes, and the binding of a client's operands to a program's roles.
//! Knows   shapes and programs. It is built once, as look-ups ask for it or in [`warm`], and never changes.
//! Rule    a row is taken only for the very same shape; what is not in the table is left to whoever asked.

use std::sync::OnceLock;

use super::native::{self, Arg, Calls, Give, Operands, Raised, Returned, Role, Step, Test};
use super::rows::ROWS;
use super::shape::{Operand, Shape};
use super::spellings::{ACQUIRES, ACTIONS, Action, GUARDS, Piece, REFUSALS, SILENT_GUARDS};

/// A row that is written out.
pub(super) struct Row {
    /// What it does, in a few words.
    pub(super) name: &'static str,
    /// Who sends it, and what for.
    pub(super) sent_by: &'static str,
    /// The script in our own spelling; its KEYS, ARGV and literals are the roles of the program.
    pub(super) text: &'static str,
    /// What is run.
    pub(super) steps: &'static [Step],
}

#[derive(Clone, Copy, Debug)]
enum Program {
    Guarded { held: &'static [Step], otherwise: &'static [Step] },
    Steps(&'static [Step]),
}

#[derive(Debug)]
struct Entry {
    sha1: [u8; 20],
    name: &'static str,
    sent_by: &'static str,
    roles: Box<[Role]>,
    program: Program,
}

/// The rows by what they can call: each action has a group of its own, and the first has all the rest. A group is built
/// when the first script comes that could be in it, so that nobody waits for the spellings of what nobody sends.
static GROUPS: [OnceLock<Vec<Entry>>; ACTIONS.len() + 1] = [const { OnceLock::new() }; ACTIONS.len() + 1];

/// Builds the whole table, which scripts would otherwise pay for, group by group, with a millisecond or two each.
pub fn warm() {
    for place in 0..GROUPS.len() {
        group(place);
    }
}

/// A script of the table, bound to the operands of one client's text. Kept with the script, so that it is read once.
#[derive(Clone, Debug)]
pub struct Recognised {
    entry: &'static Entry,
    operands: Box<[Operand]>,
    call_lines: Box<[u32]>,
    numbers: Box<[Role]>,
    commands: Box<[&'static str]>,
    needs_keys: bool,
}

/// The script's row, if it has one.
pub fn recognise(script: &[u8]) -> Option<Recognised> {
    let shape = Shape::of(script).ok()?;
    let sha1 = shape.sha1();
    let entry = find(&shape, &sha1)?;
    let mut needs = Needs::default();
    match entry.program {
        Program::Guarded { held, otherwise } => {
            needs.call(native::GET);
            needs.steps(held);
            needs.steps(otherwise);
        }
        Program::Steps(steps) => needs.steps(steps),
    }
    Some(Recognised {
        entry,
        operands: shape.holes().into(),
        call_lines: shape.call_lines().into(),
        numbers: needs.numbers.into(),
        commands: needs.commands.into(),
        needs_keys: needs.keys,
    })
}

impl Recognised {
    /// What it does, in a few words.
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// Who sends it, and what for.
    pub fn sent_by(&self) -> &'static str {
        self.entry.sent_by
    }

    /// The commands that it may call, in upper case, each once. A server that lacks one of them must not run it.
    pub fn commands(&self) -> impl Iterator<Item = &'static str> {
        self.commands.iter().copied()
    }

    /// True where these KEYS and ARGV fill every hole, and are numbers where Lua would compute with them. A call that
    /// does not fit has to be interpreted or refused.
    pub fn fits(&self, keys: &[&[u8]], args: &[&[u8]]) -> bool {
        let bound = Bound { script: self, keys, args };
        self.operands.iter().all(|operand| bound.operand(operand).is_some())
            && self.numbers.iter().all(|role| native::is_number(bound.value(*role)))
            && (!self.needs_keys || (1..=KEYS_MAX).contains(&keys.len()))
    }

    /// Keys that the script names without declaring them: literals, or ARGV in the place of a key.
    pub fn undeclared<'a>(
        &'a self,
        keys: &'a [&'a [u8]],
        args: &'a [&'a [u8]],
    ) -> impl Iterator<Item = &'a [u8]> {
        let pairs = self.entry.roles.iter().zip(&self.operands);
        pairs
            .filter(|(role, operand)| matches!(role, Role::Key(_)) && !matches!(operand, Operand::Key(_)))
            .filter_map(move |(_, operand)| resolve(operand, keys, args))
    }

    /// Runs it. To be called only where [`Recognised::fits`].
    ///
    /// # Errors
    /// [`Raised`] where a `redis.call` failed; [`Recognised::line`] tells on which line.
    pub fn run(&self, keys: &[&[u8]], args: &[&[u8]], calls: &mut dyn Calls) -> Result<Returned, Raised> {
        let bound = Bound { script: self, keys, args };
        match self.entry.program {
            Program::Guarded { held, otherwise } => native::run_guarded(held, otherwise, &bound, calls),
            Program::Steps(steps) => native::run(steps, &bound, calls),
        }
    }

    /// The line of the script's text on which a call stands, from 1: the N of `script: <sha>, on @user_script:N.`
    pub fn line(&self, raised: Raised) -> u32 {
        self.call_lines.get(usize::from(raised.call)).copied().unwrap_or(1)
    }
}

/// The most KEYS that a script over all its keys may have; Lua's `unpack` has a limit of its own above this.
pub const KEYS_MAX: usize = 1_000;

struct Bound<'a> {
    script: &'a Recognised,
    keys: &'a [&'a [u8]],
    args: &'a [&'a [u8]],
}

impl Bound<'_> {
    fn operand<'b>(&'b self, operand: &'b Operand) -> Option<&'b [u8]> {
        resolve(operand, self.keys, self.args)
    }
}

impl Operands for Bound<'_> {
    fn value(&self, role: Role) -> &[u8] {
        let place = self.script.entry.roles.iter().position(|own| *own == role);
        let operand = place.and_then(|place| self.script.operands.get(place));
        operand.and_then(|operand| resolve(operand, self.keys, self.args)).unwrap_or_default()
    }

    fn keys(&self) -> &[&[u8]] {
        self.keys
    }
}

fn resolve<'a>(operand: &'a Operand, keys: &[&'a [u8]], args: &[&'a [u8]]) -> Option<&'a [u8]> {
    match operand {
        Operand::Argument(index) => args.get(usize::from(*index) - 1).copied(),
        Operand::Key(index) => keys.get(usize::from(*index) - 1).copied(),
        Operand::Literal(bytes) => Some(bytes),
    }
}

/// What a program asks of its operands beyond being there.
#[derive(Default)]
struct Needs {
    numbers: Vec<Role>,
    commands: Vec<&'static str>,
    keys: bool,
}

impl Needs {
    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Call(call) | Step::Keep(call) | Step::KeepLeast(call) | Step::Try(call) => self.call(call),
            Step::Count => {}
            Step::EachKey(steps) => {
                self.keys = true;
                self.steps(steps);
            }
            Step::Holder { get, held, missing, other, .. } => {
                self.call(get);
                self.steps(held);
                self.steps(missing);
                self.steps(other);
            }
            Step::If { reply, is, then, otherwise } => {
                self.call(reply);
                self.test(is);
                self.steps(then);
                self.steps(otherwise);
            }
            Step::IfKept { is, then } => {
                self.test(is);
                self.steps(then);
            }
            Step::IfOperand { operand, is, then } => {
                self.numbers.push(operand);
                self.test(is);
                self.steps(then);
            }
            Step::IfSame { then, otherwise, .. } => {
                self.steps(then);
                self.steps(otherwise);
            }
            Step::Prefix { read, length, other, .. } => {
                self.numbers.push(length);
                self.call(read);
                self.steps(other);
            }
            Step::Return(Give::Call(call)) => self.call(call),
            Step::Return(Give::TextAndNumber { text, number, .. }) => {
                self.call(text);
                self.call(number);
            }
            Step::Return(_) => {}
            Step::Shared { get, other, .. } => {
                self.call(get);
                self.steps(other);
            }
        }
    }

    fn call(&mut self, call: native::Do) {
        if !self.commands.contains(&call.command) {
            self.commands.push(call.command);
        }
        for arg in call.args {
            match *arg {
                Arg::KeptPlus(role) | Arg::Number(role) | Arg::OneLess(role) => self.numbers.push(role),
                Arg::AllKeys | Arg::AllKeysWith(_) => self.keys = true,
                Arg::Format(..) | Arg::Of(_) | Arg::Word(_) => {}
            }
        }
    }

    fn test(&mut self, test: Test) {
        if let Test::BelowOperand(role) = test {
            self.numbers.push(role);
        }
    }
}

/// Every text of the table in our own spelling, with the name of its row: for tests and for documents.
pub fn texts() -> Vec<(String, &'static str)> {
    let mut texts = Vec::new();
    each(&mut |text, name, _, _| texts.push((text.to_owned(), name)));
    texts
}

fn find(shape: &Shape, sha1: &[u8; 20]) -> Option<&'static Entry> {
    let calls = |action: &Action| shape.canonical().contains(action.command);
    let places = (0..GROUPS.len()).filter(|place| place.checked_sub(1).is_none_or(|at| calls(&ACTIONS[at])));
    places.map(group).find_map(|entries| {
        let found = entries.binary_search_by(|entry| entry.sha1.cmp(sha1)).ok()?;
        Some(&entries[found])
    })
}

fn group(place: usize) -> &'static [Entry] {
    GROUPS[place].get_or_init(|| {
        let mut entries = Vec::new();
        rows(place, &mut |text, name, sent_by, program| entries.push(entry(text, name, sent_by, program)));
        entries.sort_by_key(|entry: &Entry| entry.sha1);
        // Two texts of one shape, where both lists have it, mean the same: a test holds them to it.
        entries.dedup_by(|later, earlier| later.sha1 == earlier.sha1);
        entries
    })
}

type Add<'a> = dyn FnMut(&str, &'static str, &'static str, Program) + 'a;

/// Every row, written out or combined.
fn each(add: &mut Add<'_>) {
    (0..GROUPS.len()).for_each(|place| rows(place, add));
}

/// The rows of one group.
fn rows(place: usize, add: &mut Add<'_>) {
    match place.checked_sub(1) {
        Some(at) => combined(&ACTIONS[at], add),
        None => written_out(add),
    }
}

/// One action behind every guard, with every answer.
fn combined(action: &Action, add: &mut Add<'_>) {
    for ending in action.endings {
        let mut combine = |guard: &str, refusal: &Piece| {
            let text = guard.replacen('H', ending.text, 1).replacen(" M", &format!(" {}", refusal.text), 1);
            let program = Program::Guarded { held: ending.steps, otherwise: refusal.steps };
            add(&text, action.name, action.sent_by, program);
        };
        for guard in GUARDS {
            REFUSALS.iter().for_each(|refusal| combine(guard, refusal));
        }
        SILENT_GUARDS.iter().for_each(|guard| combine(guard, &SILENCE));
    }
}

fn written_out(add: &mut Add<'_>) {
    for row in ROWS.iter().copied().flatten() {
        add(row.text, row.name, row.sent_by, Program::Steps(row.steps));
    }
    for (options, reply, number) in ACQUIRES {
        let set = format!("redis.call('set', KEYS[1], ARGV[1], {options})");
        for (spelling, is_number) in ACQUIRE_SPELLINGS {
            let steps = if *is_number { number } else { reply };
            add(
                &spelling.replacen('S', &set, 1),
                "acquire",
                "acquires and forced sets by SET",
                Program::Steps(steps),
            );
        }
    }
}

const SILENCE: Piece = Piece { text: "", steps: &[Step::Return(Give::Nil)] };

/// The spellings of an acquire by one SET, `S`, and whether they answer with a number in place of SET's reply.
const ACQUIRE_SPELLINGS: &[(&str, bool)] = &[
    ("return S", false),
    ("local r = S return r", false),
    ("if S then return 1 else return 0 end", true),
    ("if S then return 1 end return 0", true),
    ("local r = S if r then return 1 else return 0 end", true),
    ("local r = S if r then return 1 end return 0", true),
];

fn entry(text: &str, name: &'static str, sent_by: &'static str, program: Program) -> Entry {
    let shape = Shape::of(text.as_bytes()).expect("a row of the table is a shape");
    let roles = shape.holes().iter().map(role).collect();
    Entry { sha1: shape.sha1(), name, sent_by, roles, program }
}

fn role(operand: &Operand) -> Role {
    match operand {
        Operand::Argument(index) => Role::Argument(*index),
        Operand::Key(index) => Role::Key(*index),
        // A row's literals are few, short and its own; the table lives as long as the process.
        Operand::Literal(bytes) => Role::Literal(String::from_utf8_lossy(bytes).into_owned().leak()),
    }
}

#[cfg(test)]
mod laws {
    use std::collections::BTreeMap;

    use super::*;

    fn program(entry: &Entry) -> String {
        match entry.program {
            // The guarded form is the spelled-out one with the same branch twice.
            Program::Guarded { held, otherwise } => format!("{held:?} {otherwise:?}"),
            Program::Steps([Step::Holder { held, missing, other, .. }]) => match format!("{missing:?}") {
                same if same == format!("{other:?}") => format!("{held:?} {other:?}"),
                differs => format!("{held:?} {differs} {other:?}"),
            },
            Program::Steps(steps) => format!("{steps:?}"),
        }
    }

    fn entries() -> Vec<(String, Entry)> {
        let mut all = Vec::new();
        each(&mut |text, name, sent_by, program| {
            all.push((text.to_owned(), entry(text, name, sent_by, program)))
        });
        all
    }

    #[test]
    fn every_role_of_a_program_is_an_operand_of_its_text() {
        for (text, entry) in entries() {
            let steps = program(&entry);
            for role in ["Key(1)", "Key(2)", "Argument(1)", "Argument(2)", "Argument(3)", "Literal(\"1\")"] {
                let known = entry.roles.iter().any(|own| format!("{own:?}") == role);
                let is_token = role == "Argument(1)" && matches!(entry.program, Program::Guarded { .. });
                assert!(known || is_token || !steps.contains(role), "{}: {role}", text);
            }
        }
    }

    #[test]
    fn every_call_of_a_program_is_a_call_of_its_text() {
        for (text, entry) in entries() {
            let lines = Shape::of(text.as_bytes()).unwrap().call_lines().len();
            assert!(!program(&entry).contains(&format!("call: {lines},")), "{}", text);
        }
    }

    #[test]
    fn a_row_is_found_by_its_own_text_and_by_any_spelling_of_it() {
        for (text, entry) in entries() {
            // Blanks and quotes inside a string are not spelling.
            let is_plain = !text.contains('"');
            let loud = if is_plain {
                text.replace('\'', "\"").replace(' ', "\n\t")
            } else {
                format!("--[[ x ]] {text}")
            };
            for text in [&text, &loud] {
                let found = recognise(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
                assert_eq!(found.entry.sha1, entry.sha1, "{text}");
            }
        }
    }

    #[test]
    fn a_row_names_every_command_of_its_text_but_mget() {
        for (text, entry) in entries() {
            let found = recognise(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            let named: Vec<_> = found.commands().collect();
            let upper = text.to_ascii_uppercase();
            let called = upper.split("CALL('").skip(1).filter_map(|rest| rest.split('\'').next());
            for command in called {
                // Reading one key at a time sees what MGET sees, and an argument that decides nothing decides nothing.
                let is_replaced = command == "MGET" || (command == "PERSIST" && upper.contains("~= -1"));
                assert!(named.contains(&command) || is_replaced, "{}: {command}", entry.name);
            }
        }
    }

    #[test]
    fn an_action_names_the_command_that_its_endings_call() {
        for action in ACTIONS {
            for ending in action.endings {
                assert!(
                    ending.text.to_ascii_uppercase().contains(&format!("CALL('{}'", action.command)),
                    "{}",
                    action.name
                );
            }
        }
    }

    #[test]
    fn texts_of_one_shape_have_one_program() {
        let mut seen: BTreeMap<[u8; 20], String> = BTreeMap::new();
        for (text, entry) in entries() {
            let own = program(&entry);
            assert_eq!(*seen.entry(entry.sha1).or_insert_with(|| own.clone()), own, "{}", text);
        }
    }
}
