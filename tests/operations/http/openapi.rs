//! `docs/openapi.json` describes `/api` as the server is: its paths, parameters, fields and statuses.
//!
//! Law    what the server answers is in the file, and what the file has is in some answer. Exceptions are named below.

use std::collections::{BTreeMap, BTreeSet};

use redlatch::Server;
use serde_json::{Value, json};

use super::access::basic;
use super::api::{event, viewer};
use super::{post, server};
use crate::support::http::{HttpClient, HttpReply, get};
use crate::support::stream::Peer;
use crate::support::waits::wait_until;

const FILE: &str = include_str!("../../../docs/openapi.json");
/// Fields that no server alone answers: those of a cluster, of the shadow of another server, and of a sample that has failed.
const ELSEWHERE: &[&str] = &[
    "/components/schemas/Group/",
    "/components/schemas/Holder/properties/known",
    "/components/schemas/End/properties/known",
    "/components/schemas/Event/properties/error",
];
/// Schemas of requests.
const REQUESTS: &[&str] = &["/components/schemas/Change/", "/components/schemas/Break/"];
/// Statuses that take ten seconds, or a defect.
const NOT_TRIED: &[u16] = &[408, 500];
const HOLD: &str = "/api/locks/{key}";

/// The file, and what answers have shown of it.
struct Spec {
    file: Value,
    fields: BTreeSet<String>,
    statuses: BTreeSet<u16>,
}

impl Spec {
    fn new() -> Self {
        let file = serde_json::from_str(FILE).expect("JSON");
        Self { file, fields: BTreeSet::new(), statuses: BTreeSet::new() }
    }

    fn paths(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.file["paths"].as_object().expect("the paths").iter()
    }

    /// What stands at a pointer or behind the reference there, and where that is.
    fn at(&self, pointer: &str) -> (Value, String) {
        let found = self.file.pointer(pointer).unwrap_or_else(|| panic!("{pointer}: not in the file"));
        match found["$ref"].as_str() {
            Some(target) => (self.file.pointer(&target[1..]).expect(target).clone(), target[1..].to_owned()),
            None => (found.clone(), pointer.to_owned()),
        }
    }

    /// Checks an answer of an operation, and notes what it shows.
    fn check(&mut self, method: &str, path: &str, reply: &HttpReply) {
        let path = path.replace('/', "~1");
        let (response, at) = self.at(&format!("/paths/{path}/{method}/responses/{}", reply.status));
        self.statuses.insert(reply.status);
        let kind = reply.header("content-type").map(|kind| kind.split(';').next().unwrap_or(kind));
        let Some(kind) = kind else { return assert_eq!(response["content"], json!({}), "{reply:?}") };
        assert!(response["content"].get(kind).is_some(), "{method} {path}: {reply:?}");
        if kind == "application/json" {
            let value = serde_json::from_str(&reply.body).expect("JSON");
            self.check_value(&format!("{at}/content/application~1json/schema"), &value);
        }
    }

    fn check_value(&mut self, pointer: &str, value: &Value) {
        let (schema, at) = self.at(pointer);
        if let Some(options) = schema["anyOf"].as_array() {
            let fitting = (0..options.len()).find(|option| self.fits(&format!("{at}/anyOf/{option}"), value));
            let fitting = fitting.unwrap_or_else(|| panic!("{at}: none fits {value}"));
            return self.check_value(&format!("{at}/anyOf/{fitting}"), value);
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            kind => kind.as_str().into_iter().collect(),
        };
        let is_one = schema["enum"].as_array().is_none_or(|values| values.contains(value));
        assert!(is_one && kinds.iter().any(|kind| is_of(kind, value)), "{at}: {kinds:?}, not {value}");
        for item in value.as_array().into_iter().flatten() {
            self.check_value(&format!("{at}/items"), item);
        }
        for (name, field) in value.as_object().into_iter().flatten() {
            if schema["properties"].get(name).is_some() {
                self.fields.insert(format!("{at}/properties/{name}"));
                self.check_value(&format!("{at}/properties/{name}"), field);
            } else if schema["additionalProperties"].is_object() {
                self.check_value(&format!("{at}/additionalProperties"), field);
            } else {
                let is_base64 = name.ends_with("_base64") && schema.get("patternProperties").is_some();
                assert!(is_base64, "{at}: {name} is not in the file");
            }
        }
        for name in required(&schema) {
            assert!(value.get(name).is_some(), "{at}: {name} is not in {value}");
        }
    }

    /// Whether a value is one of this option.
    fn fits(&self, pointer: &str, value: &Value) -> bool {
        let (schema, _) = self.at(pointer);
        (schema["type"] == "null") == value.is_null()
            && required(&schema).all(|name| value.get(name).is_some())
    }

    /// Checks that everything in the file was in some answer.
    fn end(&self) {
        let (mut fields, mut statuses) = (BTreeSet::new(), BTreeSet::new());
        for (_, operations) in self.paths() {
            for operation in ["get", "post"].iter().filter_map(|method| operations.get(method)) {
                let codes = operation["responses"].as_object().expect("responses").keys();
                statuses.extend(codes.map(|code| code.parse::<u16>().expect("a status")));
            }
        }
        statuses.retain(|status| !NOT_TRIED.contains(status));
        assert_eq!(statuses, self.statuses);
        fields_below(&self.file, "", &mut fields);
        let skipped = [ELSEWHERE, REQUESTS].concat();
        fields.retain(|field| !skipped.iter().any(|start| field.starts_with(start)));
        let unseen: Vec<_> = fields.difference(&self.fields).collect();
        assert!(unseen.is_empty(), "no answer has {unseen:#?}");
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The pointers of all properties.
fn fields_below(value: &Value, pointer: &str, fields: &mut BTreeSet<String>) {
    for (name, part) in value.as_object().into_iter().flatten() {
        let at = format!("{pointer}/{}", name.replace('/', "~1"));
        if pointer.ends_with("/properties") {
            fields.insert(at.clone());
        }
        fields_below(part, &at, fields);
    }
    for (number, part) in value.as_array().into_iter().flatten().enumerate() {
        fields_below(part, &format!("{pointer}/{number}"), fields);
    }
}

/// The names after `has ` or `one of ` in an error.
fn names(error: &str) -> BTreeSet<String> {
    let list = ["must be one of ", " has "].iter().find_map(|mark| error.split_once(mark));
    let list = list.unwrap_or_else(|| panic!("{error} lists nothing")).1;
    list.split(", ").map(str::to_owned).collect()
}

fn error(reply: &HttpReply) -> String {
    let value: Value = serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"));
    value["error"].as_str().expect("an error").to_owned()
}

/// Sends a request as it is, and reads its status.
fn raw(server: &Server, request: &str) -> HttpReply {
    let mut client = HttpClient::to(server.http_addr());
    client.send(request.as_bytes());
    client.reply(true)
}

#[test]
fn each_route_of_the_server_is_in_the_file_and_the_reverse() {
    let source = include_str!("../../../crates/server/src/http/routes.rs");
    let (_, table) = source.split_once("const ROUTES: &[Route] = &[").expect("the table");
    let (table, _) = table.split_once("\n];").expect("its end");
    let mut routes: BTreeSet<&str> = table.split('"').skip(1).step_by(2).collect();
    routes.retain(|path| path.starts_with("/api"));
    assert!(table.contains("hold_request::PATH"));
    routes.insert(HOLD);
    let spec = Spec::new();
    assert_eq!(spec.paths().map(|(path, _)| &**path).collect::<BTreeSet<_>>(), routes);
    let server = server(&[("http-admin", "yes")]);
    for (path, operations) in spec.paths() {
        let other = if operations.get("get").is_some() { "POST" } else { "GET" };
        let reply = HttpClient::to(server.http_addr()).ask(other, &path.replace("{key}", "k"), "");
        assert_eq!(reply.status, 405, "{other} {path}");
    }
}

#[test]
fn each_parameter_of_a_request_is_in_the_file_and_the_reverse() {
    let (spec, server) = (Spec::new(), server(&[("http-admin", "yes")]));
    for (path, operations) in spec.paths().filter(|(path, _)| path.starts_with("/api/lock") && *path != HOLD)
    {
        let listed = operations["get"]["parameters"].as_array().expect("parameters").iter();
        let listed: BTreeSet<_> =
            listed.map(|one| one["name"].as_str().expect("a name").to_owned()).collect();
        assert_eq!(listed, names(&error(&get(server.http_addr(), &format!("{path}?x=1")))), "{path}");
    }
    for path in ["/api/contention", "/api/graph", "/api/lint", "/api/clients"] {
        let said = error(&get(server.http_addr(), &format!("{path}?x=1")));
        assert_eq!(said, "parameter 'x': this path has no parameters", "{path}");
        assert_eq!(spec.file["paths"][path]["get"].get("parameters"), None);
    }
    let mut known = BTreeSet::new();
    for action in ["take", "renew", "release"] {
        let body = json!({ "action": action, "x": 1 }).to_string();
        known.extend(names(&error(&post(&server, "/api/locks/k", "", &body))));
    }
    let change = &spec.file["components"]["schemas"]["Change"]["properties"];
    assert_eq!(change.as_object().expect("fields").keys().cloned().collect::<BTreeSet<_>>(), known);
}

/// Locks, waits, ends and mistakes of which answers tell.
fn clients_at_work(server: &Server) -> Vec<Peer> {
    let (mut one, two) = (Peer::to(server.addr()), Peer::to(server.addr()));
    get(server.http_addr(), "/api/lock?key=lock:a");
    for request in [
        "CLIENT SETNAME one",
        "RPUSH list 1",
        "SET forever me NX",
        "LOCK.ACQUIRE lock:b me JUSTTOKEN",
        "LOCK.ACQUIRE lock:ended me JUSTTOKEN",
        "LOCK.RELEASE lock:ended me",
        r#"LOCK.ACQUIRE lock:a "me\xfe" JUSTTOKEN META job "\xfd""#,
    ] {
        assert!(!one.ask(format!("{request}\r\n").as_bytes()).starts_with('-'), "{request}");
    }
    two.send(b"LOCK.MACQUIRE 2 lock:a lock:b you ANY 1 WAIT 600000 PRIORITY 1\r\n");
    wait_until("one waits", || {
        get(server.http_addr(), "/api/lock?key=lock:a").body.contains("\"waiting\":1")
    });
    let three = Peer::to(server.addr());
    three.send(b"EVAL 'while true do end' 1 apart\r\n");
    wait_until("a script runs", || get(server.http_addr(), "/api/clients").body.contains("script-age"));
    vec![one, two, three]
}

#[test]
fn each_field_and_each_status_of_an_answer_is_in_the_file_and_the_reverse() {
    let (mut spec, server) = (Spec::new(), server(&[("http-admin", "yes"), ("lock-lint", "yes")]));
    let mut peers = clients_at_work(&server);
    spec.check("get", "/api/clients", &get(server.http_addr(), "/api/clients"));
    assert_eq!(peers[0].ask(b"SCRIPT KILL\r\n"), "+OK");
    for path in ["/api/locks", "/api/contention", "/api/graph", "/api/groups", "/api/lint"] {
        spec.check("get", path, &get(server.http_addr(), path));
    }
    for key in ["lock:a", "lock:ended", "list", "free"] {
        spec.check("get", "/api/lock", &get(server.http_addr(), &format!("/api/lock?key={key}")));
    }
    let mut watched = viewer(&server);
    let (_, snapshot) = event(&mut watched);
    spec.check_value("/components/schemas/Event", &snapshot);
    assert_eq!(peers[0].ask(b"DEL forever\r\n"), ":1");
    loop {
        let (_, change) = event(&mut watched);
        spec.check_value("/components/schemas/Event", &change);
        if change["removed"] != json!([]) {
            break;
        }
    }
    drop(watched);

    for (key, body) in [
        ("h", json!({ "action": "take", "owner": "a" })),
        ("h", json!({ "action": "renew", "owner": "a" })),
        ("h", json!({ "action": "take", "owner": "b" })),
        ("h", json!({ "action": "renew", "owner": "b" })),
        ("h", json!({ "action": "release", "owner": "b" })),
        ("list", json!({ "action": "take", "owner": "b" })),
        ("h", json!({ "action": "take", "owner": "" })),
        ("h", json!({ "action": "x".repeat(17 * 1024) })),
    ] {
        spec.check("post", HOLD, &post(&server, &format!("/api/locks/{key}"), "", &body.to_string()));
    }
    for token in [99, 1] {
        let body = json!({ "key": "h", "token": token });
        spec.check("post", "/api/break", &post(&server, "/api/break", "", &body.to_string()));
    }
    check_refusals(&mut spec, &server);
    spec.end();
}

/// Statuses that come before a request reaches its path, or because of other requests.
fn check_refusals(spec: &mut Spec, open: &Server) {
    for request in [
        "GET /api/locks HTTP/1.1\r\nHost: other.example\r\n\r\n".to_owned(),
        format!("GET /api/locks?match={} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(17 * 1024)),
    ] {
        spec.check("get", "/api/locks", &raw(open, &request));
    }
    let mut viewers: Vec<HttpClient> = (0..16).map(|_| viewer(open)).collect();
    viewers.iter_mut().for_each(|viewer| drop(event(viewer)));
    spec.check("get", "/api/events", &viewer(open).reply(true));

    let closed = server(&[("requirepass", "secret")]);
    spec.check("post", "/api/break", &post(&closed, "/api/break", &basic("default:secret"), "{}"));
    let mut seen = BTreeMap::new();
    for wrong in 0..40 {
        let reply =
            HttpClient::to(closed.http_addr()).ask("GET", "/api/lint", &basic(&format!("default:{wrong}")));
        seen.insert(reply.status, reply);
    }
    seen.values().for_each(|reply| spec.check("get", "/api/lint", reply));
}
