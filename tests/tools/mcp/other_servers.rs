//! A plain Redis: what it can do for agents, and what it lacks.

use serde_json::{Value, json};

use super::host::Host;
use crate::support::binary::redlatch;
use crate::support::real::RealServer;

// Shows P-mcp-plain-redis.
#[test]
#[ignore = "needs REDLATCH_REDIS_SERVER"]
fn a_plain_redis_serves_exclusive_locks_without_a_token_and_refuses_the_rest() {
    let real = RealServer::start("redis");
    let start = |name| Host::begun(redlatch().args(["mcp", "--url", &real.url()]), name);
    let (mut one, mut other) = (start("one"), start("other"));
    for _ in 0..2 {
        let taken = one.call("take", json!({ "key": "db", "lease": "1h" }));
        assert!(!taken.is_error && taken.text.contains("no LOCK commands"), "{taken:?}");
        assert_eq!([&taken.value["taken"], &taken.value["token"]], [&json!(true), &Value::Null]);
    }
    let refused = other.call("take", json!({ "key": "db" }));
    assert!(refused.is_error && refused.text.contains("holder: one-"), "{refused:?}");
    assert!(other.call("who", json!({ "key": "db" })).text.contains("holder: one-"));
    assert_eq!(other.done("wait", json!({ "key": "db", "timeout": "1ms" }))["free"], false);
    one.done("renew", json!({ "key": "db", "lease": "2h" }));
    for (tool, arguments) in [
        ("renew", json!({ "key": "db" })),
        ("renew", json!({ "key": "db", "lease": "1h", "token": 7 })),
        ("release", json!({ "key": "db", "token": 7 })),
        ("take", json!({ "key": "b", "shared": true })),
        ("list", json!({})),
        ("explain", json!({ "key": "db" })),
    ] {
        let refused = one.call(tool, arguments);
        assert!(refused.is_error && refused.text.lines().count() == 1, "{tool}: {refused:?}");
        assert!(refused.text.contains("LOCK"), "{tool}: {refused:?}");
    }
    one.done("release", json!({ "key": "db" }));
    assert!(one.call("release", json!({ "key": "db" })).is_error);
    other.done("take", json!({ "key": "db" }));
}
