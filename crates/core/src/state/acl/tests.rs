//! Rules, hostile ones included, and what they let through; the registry and its file.

use redlatch_proto::limits::ACL_RULES_MAX;

use super::*;

/// Commands 0 to 3: `get`, `set`, `config` with `config|get`.
struct Few;

impl Catalog for Few {
    fn total(&self) -> u16 {
        4
    }

    fn command(&self, name: &[u8]) -> Option<std::ops::Range<u16>> {
        match name.to_ascii_lowercase().as_slice() {
            b"get" => Some(0..1),
            b"set" => Some(1..2),
            b"config" => Some(2..4),
            b"config|get" => Some(3..4),
            _ => None,
        }
    }

    fn category(&self, name: &[u8]) -> Option<Vec<u16>> {
        (name == b"read").then(|| vec![0, 3])
    }
}

const TERMS: Terms<'static> = Terms { catalog: &Few, all_channels: false };

fn acl() -> Acl {
    Acl::new(b"", TERMS, &Arc::default())
}

fn set(acl: &Acl, name: &str, rules: &str) -> Result<Arc<Account>, SetError> {
    acl.set(name.as_bytes(), rules.split(' ').map(str::as_bytes), TERMS)
}

fn described(rules: &str) -> String {
    String::from_utf8(set(&acl(), "me", rules).unwrap().user().describe()).unwrap()
}

fn asked(command: u16, first: &'static str) -> Asked<'static> {
    let first = Some(first.as_bytes());
    Asked { command, is_free: false, first, keys: Vec::new(), channels: Vec::new(), is_pattern: false }
}

#[test]
fn a_described_user_is_read_back_unchanged() {
    for rules in [
        "on nopass ~* &* +@all",
        "on lock-priority-max=3 >a +get lock-priority-max=0",
        "on >a >b ~a* %R~b %W~c ~d resetchannels &x &y -@all +get +config|get",
        "off ~a -@all +@read -get +set|x (~b -@all +get) (%R~c &d +@all -set) ()",
    ] {
        let acl = acl();
        let user = set(&acl, "me", rules).unwrap().user();
        let text = file::text(&acl);
        let users = file::parse(&text, "f", TERMS).unwrap();
        let again = users.into_iter().find(|(name, _)| name == b"me").unwrap().1;
        assert_eq!(again.describe(), user.describe(), "{rules}");
        assert_eq!(again, User::clone(&user), "{rules}");
    }
}

#[test]
fn a_rule_replaces_the_rules_that_it_overrides() {
    for (rules, commands) in [
        ("+get +get", "-@all +get"),
        ("+get -get", "-@all -get"),
        ("+config|get +config", "-@all +config"),
        ("+config +config|get", "-@all +config +config|get"),
        ("+get|a +get|b -get", "-@all -get"),
        ("+set +@all -set", "+@all -set"),
        ("+@all -@read +GET", "+@all -@read +get"),
    ] {
        assert_eq!(described(rules), format!("off resetchannels {commands}"), "{rules}");
    }
}

#[test]
fn rules_for_commands_are_applied_in_order() {
    let allowed = |rules: &str| {
        let user = set(&acl(), "me", rules).unwrap().user();
        (0..4).filter(|command| user.check(&asked(*command, "x")).is_ok()).collect::<Vec<_>>()
    };
    assert_eq!(allowed("+@all"), [0, 1, 2, 3]);
    assert_eq!(allowed("+@all -config +config|get"), [0, 1, 3]);
    assert_eq!(allowed("+@read -get"), [3]);
    assert_eq!(allowed("-get +@read"), [0, 3]);
    assert_eq!(allowed("+set|X +get|y"), [1]);
    assert_eq!(allowed("+set|x -@read"), [1]);
    assert_eq!(allowed("+set|x -@all"), [0_u16; 0]);
}

#[test]
fn an_unlimited_user_is_not_checked() {
    let acl = acl();
    for (rules, is_unlimited) in [
        ("+@all ~* &*", true),
        ("+get +set +config ~* &*", true),
        ("+@all ~* &* -set", false),
        ("+@all %RW~* &*", false),
        ("-@all (+@all ~* &*)", true),
    ] {
        let account = set(&acl, "me", &format!("reset {rules}")).unwrap();
        assert_eq!(account.is_unlimited(), is_unlimited, "{rules}");
    }
    let account = acl.find(b"me").unwrap();
    acl.remove(b"me", TERMS).unwrap();
    assert!(!account.is_unlimited() && account.user().check(&asked(0, "x")).is_err());
    assert!(acl.remove(DEFAULT, TERMS).is_none() && acl.default_account().is_unlimited());
}

#[test]
fn a_wrong_rule_changes_nothing() {
    let acl = acl();
    set(&acl, "me", "on >one ~a").unwrap();
    let before = file::text(&acl);
    for rules in ["off ~b bogus", "resetpass <two", "(+get", "( +get ) )x", "+config|get|x", "%~a", "#00"] {
        set(&acl, "me", rules).unwrap_err();
        set(&acl, "new", rules).unwrap_err();
    }
    for name in ["a b", "a\0b", "a\tb"] {
        assert_eq!(set(&acl, name, "on").unwrap_err(), SetError::Name);
    }
    assert_eq!(file::text(&acl), before);
}

#[test]
fn a_user_is_bounded() {
    let acl = acl();
    let many: Vec<String> = (0..=ACL_RULES_MAX).map(|number| format!("~{number}")).collect();
    let inside = format!("({})", many.join(" "));
    for rules in [many.join(" "), inside, "on ".repeat(ACL_RULES_MAX + 1)] {
        let refused = set(&acl, "me", rules.trim()).unwrap_err();
        assert!(matches!(refused, SetError::Rule(_, RuleError::TooMany)));
    }
    for start in 0..4 {
        let part: Vec<&str> = many[start * 1000..][..1000].iter().map(String::as_str).collect();
        set(&acl, "me", &part.join(" ")).unwrap();
    }
    let rest = many[4000..].join(" ");
    assert!(matches!(set(&acl, "me", &rest).unwrap_err(), SetError::Rule(_, RuleError::TooMany)));
}

proptest::proptest! {
    #[test]
    fn rules_of_any_bytes_are_refused_or_read_back(
        rules in proptest::collection::vec("[-+~&%#<>!@|()a-c*RW ]{0,6}", 0..8),
    ) {
        let acl = acl();
        let words: Vec<&[u8]> = rules.iter().map(String::as_bytes).collect();
        if let Ok(account) = acl.set(b"me", words.into_iter(), TERMS) {
            let users = file::parse(&file::text(&acl), "f", TERMS).unwrap();
            let again = users.into_iter().find(|(name, _)| name == b"me").unwrap().1;
            assert_eq!(again.describe(), account.user().describe());
        }
    }
}

#[test]
fn a_password_lets_in_its_user_while_that_is_on() {
    let acl = acl();
    set(&acl, "me", "on >one >two").unwrap();
    for (name, password, is_let_in) in [
        ("me", "one", true),
        ("me", "two", true),
        ("me", "", false),
        ("me", "onetwo", false),
        ("unknown", "one", false),
        ("default", "whatever", true),
    ] {
        let account = acl.authenticate(name.as_bytes(), password.as_bytes());
        assert_eq!(account.is_some(), is_let_in, "{name} {password}");
    }
    set(&acl, "me", "off").unwrap();
    assert!(acl.authenticate(b"me", b"one").is_none());
}

#[test]
fn the_server_is_open_while_its_default_user_is_on_and_needs_no_password() {
    let acl = acl();
    assert!(acl.is_open());
    acl.use_password(b"secret", &Few);
    assert!(!acl.is_open() && acl.authenticate(DEFAULT, b"secret").is_some());
    acl.use_password(b"", &Few);
    assert!(acl.is_open());
    set(&acl, "default", "off").unwrap();
    assert!(!acl.is_open());
    set(&acl, "default", "on resetpass").unwrap();
    assert!(!acl.is_open() && acl.authenticate(DEFAULT, b"").is_none());
}

#[test]
fn a_file_is_taken_as_a_whole_and_every_wrong_line_is_named() {
    let refused =
        |text: &str| String::from_utf8(file::parse(text.as_bytes(), "f", TERMS).unwrap_err()).unwrap();
    let end = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    assert_eq!(
        refused("user a bogus\nuser b on\nuser c +x\n"),
        format!(
            "f:1: Syntax error. f:3: Error in applying operation '+x': Unknown command or category name in ACL. {end}"
        )
    );
    let keyword = "should start with user keyword followed by the username. ";
    let comment = keyword.replace(". ", "; an ACL file has no comments. ");
    assert_eq!(refused("# ours\nuser a on\n"), format!("f:1 {comment}{end}"));
    assert_eq!(refused("foo bar\n\nuser\n"), format!("f:1 {keyword}f:3 {keyword}{end}"));
    assert_eq!(refused("user a\r\nuser a"), format!("WARNING: Duplicate user 'a' found on line 2. {end}"));
    assert!(refused("user a (+get\n").starts_with("f:1: Unmatched parenthesis in selector definition. "));
    assert!(refused(&"x\n".repeat(10_000)).len() < 2_000);
}

#[test]
fn users_missing_from_a_file_are_removed_and_the_others_keep_their_sessions() {
    let acl = acl();
    let (kept, gone) = (set(&acl, "kept", "on +@all ~* &*").unwrap(), set(&acl, "gone", "on").unwrap());
    let users = file::parse(b"user kept on\nuser new on\n", "f", TERMS).unwrap();
    let removed = acl.replace(users, b"secret", TERMS);
    assert!(removed.len() == 1 && Arc::ptr_eq(&removed[0], &gone));
    assert!(Arc::ptr_eq(&acl.find(b"kept").unwrap(), &kept) && !kept.is_unlimited());
    let names: Vec<_> = acl.all().iter().map(|account| account.name().clone()).collect();
    assert_eq!(names, ["default", "kept", "new"]);
    assert!(!acl.is_open(), "a default user that the file does not have is not left without its password");
}
