//! Libraries of functions that have been loaded, by name, and their functions, by theirs.
//!
//! Owns    the texts of the libraries and the list of their functions. The interpreter owns the functions.
//! Rule    a dump is the texts of all libraries, each behind its length in four bytes: a restart loads them again.
//! Rule    names of libraries are case-sensitive, names of functions are not.
//! Source  Redis 7.0 `functions.c`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use redlatch_proto::error::Refusal;

use crate::scripts::library::Function;
use crate::state::ledger::{Charge, Kind, Ledger};
use crate::types::heap;

/// A library that has been loaded.
#[derive(Debug)]
pub(in crate::commands) struct Library {
    pub(in crate::commands) name: String,
    /// The interpreter's number for it.
    pub(in crate::commands) id: u32,
    /// The functions it has registered, in order.
    pub(in crate::commands) functions: Vec<Function>,
    pub(in crate::commands) text: Box<[u8]>,
    /// Whether one of its functions has asked for a key that its request did not declare: they lock every shard from then on.
    pub(in crate::commands) asks_further: AtomicBool,
    /// Its memory outside of the interpreter.
    _charge: Charge,
}

/// A function and its library.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Callable {
    pub(in crate::commands) library: Arc<Library>,
    /// The index of the function in the library.
    place: usize,
}

impl Callable {
    pub(in crate::commands) fn function(&self) -> &Function {
        &self.library.functions[self.place]
    }
}

/// The libraries of one server.
#[derive(Debug, Default)]
pub struct Libraries(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    libraries: BTreeMap<String, Arc<Library>>,
    /// By their names in lower case.
    functions: BTreeMap<Vec<u8>, Callable>,
}

impl Library {
    /// A library that the interpreter has loaded. Its memory is charged to `ledger`.
    pub(in crate::commands) fn new(
        name: String,
        id: u32,
        functions: Vec<Function>,
        text: &[u8],
        ledger: &Arc<Ledger>,
    ) -> Self {
        let charge = ledger.open(Kind::Libraries);
        // Its name is also its key.
        charge.set([size_of::<Self>(), name.len(), name.len(), text.len()].iter().sum());
        functions.iter().for_each(|function| charge.add(function_bytes(function)));
        Self { name, id, functions, text: text.into(), asks_further: AtomicBool::new(false), _charge: charge }
    }
}

impl Libraries {
    /// The function of that name.
    pub(in crate::commands) fn function(&self, name: &[u8]) -> Option<Callable> {
        let is_lower = !name.iter().any(u8::is_ascii_uppercase);
        let registry = self.0.lock();
        let found = match is_lower {
            true => registry.functions.get(name),
            false => registry.functions.get(&name.to_ascii_lowercase()),
        };
        found.cloned()
    }

    /// Whether there is a library of that name.
    pub(in crate::commands) fn has(&self, name: &str) -> bool {
        self.0.lock().libraries.contains_key(name)
    }

    /// Adds a library. Returns the library of that name that it replaces.
    ///
    /// # Errors
    /// Another library has a function of one of these names. Nothing has changed.
    pub(in crate::commands) fn enter(&self, library: Library) -> Result<Option<Arc<Library>>, Refusal> {
        let mut registry = self.0.lock();
        for function in &library.functions {
            let found = registry.functions.get(&in_lower_case(function));
            if found.is_some_and(|found| found.library.name != library.name) {
                return Err(Refusal::said(format!("ERR Function {} already exists", function.name)));
            }
        }
        let old = registry.remove(&library.name);
        let library = Arc::new(library);
        for (place, function) in library.functions.iter().enumerate() {
            let callable = Callable { library: Arc::clone(&library), place };
            // Of two names that differ in letter case alone, the first can be called.
            registry.functions.entry(in_lower_case(function)).or_insert(callable);
        }
        registry.libraries.insert(library.name.clone(), library);
        Ok(old)
    }

    pub(in crate::commands) fn remove(&self, name: &[u8]) -> Option<Arc<Library>> {
        self.0.lock().remove(std::str::from_utf8(name).ok()?)
    }

    pub(in crate::commands) fn flush(&self) -> Vec<Arc<Library>> {
        let all = std::mem::take(&mut *self.0.lock());
        all.libraries.into_values().collect()
    }

    /// All libraries, in the order of their names.
    pub(in crate::commands) fn list(&self) -> Vec<Arc<Library>> {
        self.0.lock().libraries.values().cloned().collect()
    }

    /// The texts of all libraries.
    pub fn dump(&self) -> Bytes {
        let mut dump = BytesMut::new();
        for library in self.list() {
            // A text is an argument of a request, which is far shorter.
            dump.put_u32_le(u32::try_from(library.text.len()).unwrap_or(u32::MAX));
            dump.put_slice(&library.text);
        }
        dump.freeze()
    }

    /// How many libraries there are, and how many functions they have.
    pub fn counts(&self) -> (usize, usize) {
        let registry = self.0.lock();
        let functions = registry.libraries.values().map(|library| library.functions.len()).sum();
        (registry.libraries.len(), functions)
    }
}

/// Bytes of a function in its library and in the registry.
fn function_bytes(function: &Function) -> usize {
    let described = function.description.as_ref().map_or(0, Vec::capacity);
    let places = [size_of::<Function>(), heap::in_tree::<(Vec<u8>, Callable)>()];
    let texts = [function.name.len(), function.name.len(), described, size_of_val(&*function.flags)];
    places.iter().chain(&texts).sum()
}

/// The texts in a dump. A text that is cut short is left out.
pub(in crate::commands) fn texts(mut dump: Bytes) -> Vec<Bytes> {
    let mut texts = Vec::new();
    while let Ok(length) = dump.try_get_u32_le() {
        let length = length as usize;
        if length > dump.len() {
            break;
        }
        texts.push(dump.split_to(length));
    }
    texts
}

impl Registry {
    fn remove(&mut self, name: &str) -> Option<Arc<Library>> {
        let library = self.libraries.remove(name)?;
        self.functions.retain(|_, callable| !Arc::ptr_eq(&callable.library, &library));
        Some(library)
    }
}

fn in_lower_case(function: &Function) -> Vec<u8> {
    function.name.to_ascii_lowercase().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_has_the_text_of_each_library() {
        let libraries = Libraries::default();
        assert!(libraries.dump().is_empty());
        for (name, text) in [("b", &b"#!lua name=b\n\0"[..]), ("a", b"#!lua name=a\n")] {
            libraries.enter(Library::new(name.to_owned(), 0, Vec::new(), text, &Arc::default())).unwrap();
        }
        let dump = libraries.dump();
        assert_eq!(texts(dump.clone()), [&b"#!lua name=a\n"[..], b"#!lua name=b\n\0"]);
        for end in 0..dump.len() {
            assert!(texts(dump.slice(..end)).len() < 2, "cut at {end}");
        }
    }

    fn library(name: &str, functions: &[&str]) -> Library {
        let one = |name: &&str| Function { name: (*name).to_owned(), description: None, flags: Vec::new() };
        let functions = functions.iter().map(one).collect();
        Library::new(name.to_owned(), 0, functions, b"#!lua", &Arc::default())
    }

    #[test]
    fn a_function_belongs_to_one_library() {
        let libraries = Libraries::default();
        libraries.enter(library("a", &["one", "Two"])).unwrap();
        assert!(libraries.enter(library("b", &["three", "TWO"])).is_err());
        assert!(libraries.function(b"three").is_none());
        let replaced = libraries.enter(library("a", &["two", "four"])).unwrap().unwrap();
        assert_eq!(replaced.functions.len(), 2);
        assert!(libraries.function(b"one").is_none());
        assert_eq!(libraries.function(b"tWO").unwrap().function().name, "two");
        assert_eq!(libraries.counts(), (1, 2));
        assert!(libraries.remove(b"A").is_none());
        assert!(libraries.remove(b"a").is_some());
        assert_eq!(libraries.counts(), (0, 0));
        assert!(libraries.function(b"two").is_none());
    }
}
