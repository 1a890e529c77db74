//! A host of an agent: it starts `redlatch mcp` and speaks the protocol to it, a line at a time.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::binary::{Running, redlatch};

pub(super) struct Host {
    pub(super) process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// The id of the last request.
    id: u64,
    /// What came while something else was waited for.
    kept: VecDeque<Value>,
}

/// What a tool has answered.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) text: String,
    /// Null if the tool could not do it.
    pub(super) value: Value,
    pub(super) is_error: bool,
}

/// A server whose clock stands still.
pub(super) fn server() -> Running {
    let server = Running::start(redlatch().args(["--port", "auto", "--enable-test-commands", "local"]));
    assert!(server.ask("TEST.CLOCK FREEZE").starts_with(':'));
    server
}

impl Host {
    /// The host of an agent of that name, which has begun the protocol.
    pub(super) fn of(server: &Running, name: &str) -> Self {
        Self::begun(redlatch().args(["mcp", "--url", &server.url()]), name)
    }

    /// Starts the command, and begins the protocol.
    pub(super) fn begun(command: &mut Command, name: &str) -> Self {
        let mut host = Self::started(command);
        let client = json!({ "name": name, "version": "1.0" });
        let begin = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        let begun = host.request("initialize", begin);
        assert_eq!(begun["result"]["protocolVersion"], "2025-06-18", "{begun}");
        host.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        host
    }

    /// Starts the command, and says nothing.
    pub(super) fn started(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, input, output, id: 0, kept: VecDeque::new() }
    }

    /// Writes bytes, as they are. The program may have ended.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        let _ = input.write_all(bytes).and_then(|()| input.flush());
    }

    pub(super) fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Sends a request; returns its id.
    pub(super) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.id += 1;
        let id = self.id;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Sends a request; returns the message that answers it.
    pub(super) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.find(|message| message["id"] == id)
    }

    /// Calls a tool, and waits for its answer.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Called {
        let id = self.begin(tool, arguments);
        self.end(id)
    }

    /// Calls a tool, and asks for its progress.
    pub(super) fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        let token = self.id + 1;
        let meta = json!({ "progressToken": token });
        self.send("tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta }))
    }

    /// Waits for the answer of a tool.
    pub(super) fn end(&mut self, id: u64) -> Called {
        let answer = self.find(|message| message["id"] == id);
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let is_error = result["isError"].as_bool().unwrap_or(false);
        Called { text: text.to_owned(), value: result["structuredContent"].clone(), is_error }
    }

    /// Calls a tool that must do it; returns its answer as JSON.
    pub(super) fn done(&mut self, tool: &str, arguments: Value) -> Value {
        let called = self.call(tool, arguments);
        assert!(!called.is_error, "{tool}: {called:?}");
        called.value
    }

    /// Waits for what the program says without being asked.
    pub(super) fn notified(&mut self, method: &str) -> Value {
        self.find(|message| message["method"] == method)["params"].clone()
    }

    /// Waits until a call waits for its lock; returns what the host is shown of it.
    pub(super) fn waits(&mut self) -> String {
        let shown = self.notified("notifications/progress");
        shown["message"].as_str().unwrap().to_owned()
    }

    /// The next message.
    pub(super) fn next(&mut self) -> Value {
        if let Some(kept) = self.kept.pop_front() {
            return kept;
        }
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the program has ended");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The first message that is meant; those before it are kept.
    fn find(&mut self, is_meant: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&is_meant) {
            return self.kept.remove(at).unwrap();
        }
        let mut before = std::mem::take(&mut self.kept);
        loop {
            let message = self.next();
            if is_meant(&message) {
                self.kept = before;
                return message;
            }
            before.push_back(message);
        }
    }

    /// Closes the connection and waits for the end of the program; returns its exit code, and what it has still said.
    pub(super) fn close(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.process.wait().unwrap().code(), rest)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
