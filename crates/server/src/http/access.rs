//! Who may ask: hosts, passwords, tokens, origins.
//!
//! Rule    a page of another site must not reach the server through its visitor's browser. The name of that site may resolve
//!         to this machine, so a request names an address, or a host that the operator has listed; and a request that changes
//!         something comes from a page of this server, of another leader of its cluster, or from no page.
//! Rule    passwords and tokens are compared in constant time, as digests.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{Request, Version};
use redlatch_core::commands::Shared;
use redlatch_core::engine::question::Requester;
use redlatch_core::state::acl::DEFAULT;
use redlatch_core::state::acl::password::Digest;
use redlatch_core::state::audit::Author;
use redlatch_core::state::settings;

use super::HttpContext;
use super::groups::origin_of_page;
use super::refusal::Refusal;

/// Who may ask for a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Access {
    /// Clients that have authenticated, if the server asks for it, where `http-admin` allows changes.
    Admin,
    /// Users of the ACL, where `http-admin` allows changes. The engine checks what their user may do.
    Holder,
    Open,
    /// Clients that have authenticated, if the server asks for it.
    Reader,
}

/// Checks that the request is for this server, and not for a name that another site lets resolve to its address.
///
/// # Errors
/// [`Refusal::Host`], [`Refusal::NoHost`].
pub(super) fn check_host<B>(request: &Request<B>, names: &[String]) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().map_err(|_| Refusal::Host)?,
        // Probes of load balancers may speak HTTP/1.0, and browsers never do.
        (None, _) if request.version() == Version::HTTP_10 => return Ok(()),
        _ => return Err(Refusal::NoHost),
    };
    // A target with a host of its own must be for that host.
    let target = request.uri().authority();
    let is_ours = is_own_host(host, names) && target.is_none_or(|target| target.as_str() == host);
    if is_ours { Ok(()) } else { Err(Refusal::Host) }
}

/// Whether `host`, with or without a port, is an address, `localhost`, or one of the names.
fn is_own_host(host: &str, names: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    if host.contains('@') {
        return false;
    }
    let host = authority.host().to_ascii_lowercase();
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv4Addr>().is_ok() || host == "localhost" || names.contains(&host),
    }
}

/// Checks that the request may have a route with this access. Returns its user; none for an open route.
///
/// # Errors
/// [`Refusal::Admin`], [`Refusal::CrossSite`], [`Refusal::Authentication`], [`Refusal::Permissions`], [`Refusal::Delayed`],
/// [`Refusal::Repeated`].
pub(super) fn check_access<B>(
    context: &HttpContext,
    access: Access,
    request: &Request<B>,
) -> Result<Bytes, Refusal> {
    let shared = context.server.engine.shared();
    if access == Access::Open {
        return Ok(Bytes::new());
    }
    if matches!(access, Access::Admin | Access::Holder) && !shared.settings.get(settings::HTTP_ADMIN) {
        return Err(Refusal::Admin);
    }
    let check = || match access {
        Access::Holder => check_user(shared, request, false),
        Access::Admin | Access::Open | Access::Reader => check_reader(shared, request),
    };
    // Browsers ask without a password first.
    let Some(login) = shown(request).filter(|_| !asks_for_nothing(shared)) else { return check() };
    let login = login_of(shared, login);
    let login = (&*login.0, &*login.1);
    let now = context.server.clock().now();
    let peer = request.extensions().get::<Requester>().map_or("", |requester| &requester.peer);
    let is_known = shared.is_failed_login(peer, login);
    if !is_known && shared.delays_logins_of(peer, now.lock) {
        shared.tell_delayed_login(peer, now.lock);
        return Err(Refusal::Delayed);
    }
    let checked = if is_known { Err(Refusal::Authentication) } else { check() };
    if checked == Err(Refusal::Authentication) {
        if !is_known {
            shared.note_failed_login(peer, login, now.lock);
        }
        tell_failed_login(context, request.uri().path(), peer);
    }
    checked
}

/// Counts a wrong password or token, and tells the audit log and the log.
fn tell_failed_login(context: &HttpContext, path: &str, peer: &str) {
    let (shared, now) = (context.server.engine.shared(), context.server.clock().now());
    shared.stats.metrics.denied_auth.add(1);
    shared.access.audit.failed_login(now, Author { user: b"", peer, client: 0 }, None);
    if let Some(times) = context.denials.happened(now.lock) {
        tracing::warn!(times, path, "HTTP requests with a wrong password or token");
    }
}

/// Checks that the request may see what readers see. Returns its user.
///
/// # Errors
/// [`Refusal::CrossSite`], [`Refusal::Authentication`], [`Refusal::Permissions`], [`Refusal::Repeated`].
pub(super) fn check_reader<B>(shared: &Shared, request: &Request<B>) -> Result<Bytes, Refusal> {
    check_user(shared, request, true)
}

/// Checks that the request comes from a user, with all permissions if it must have them. Returns the user.
fn check_user<B>(shared: &Shared, request: &Request<B>, must_be_unlimited: bool) -> Result<Bytes, Refusal> {
    let is_repeated = |name| request.headers().get_all(name).iter().nth(1).is_some();
    if is_repeated(AUTHORIZATION) || is_repeated(ORIGIN) || is_repeated(SITE) {
        return Err(Refusal::Repeated);
    }
    // Also where nothing changes: an answer that the other site cannot read costs the server its time.
    if is_cross_site(request) && origin_of_page(request.headers(), shared.cluster.as_deref()).is_none() {
        return Err(Refusal::CrossSite);
    }
    user_of(shared, shown(request), must_be_unlimited)
}

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a page of another site has sent the request. Browsers tell the origin of every request that is no GET.
fn is_cross_site<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let is_foreign_site = headers.get(SITE).is_some_and(|site| site != "same-origin" && site != "none");
    let is_foreign_origin = headers.get(ORIGIN).is_some_and(|origin| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        // A proxy in front of the server may speak TLS, so the scheme may be another one.
        origin.map(|(_, host)| host) != host
    });
    is_foreign_site || is_foreign_origin
}

/// What the request shows: a password or a token.
pub(super) fn shown<B>(request: &Request<B>) -> Option<&HeaderValue> {
    request.headers().get(AUTHORIZATION)
}

/// Whether this is what the server asks of readers: nothing, unless a token or a password is set.
pub(super) fn is_authenticated(shared: &Shared, shown: Option<&HeaderValue>) -> bool {
    user_of(shared, shown, true).is_ok()
}

/// Whether the server asks for no password or token. HTTP shows every lock: a user who needs no password must have all
/// permissions, too.
fn asks_for_nothing(shared: &Shared) -> bool {
    let acl = &shared.access.acl;
    shared.settings.get(settings::HTTP_TOKEN).is_empty()
        && acl.is_open()
        && acl.default_account().is_unlimited()
}

/// What a request shows, as the name and the password of a login that may be known to be wrong. With another token it is
/// another one: it may be right.
fn login_of(shared: &Shared, shown: &HeaderValue) -> (Vec<u8>, Vec<u8>) {
    let pair = shown.to_str().ok().and_then(basic);
    let (name, mut password) = pair.unwrap_or_else(|| (TOKEN_USER.to_vec(), shown.as_bytes().to_vec()));
    password.extend_from_slice(shared.settings.get(settings::HTTP_TOKEN).as_bytes());
    (name, password)
}

/// The name and the password of HTTP Basic. Without a name, that of the default user.
fn basic(shown: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, shown) = shown.split_once(' ')?;
    let pair = STANDARD.decode(shown.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let name = if colon == 0 { DEFAULT } else { &pair[..colon] };
    Some((name.to_vec(), pair[colon + 1..].to_vec()))
}

/// The user that a request comes from, if it shows what the server asks for.
///
/// # Errors
/// [`Refusal::Authentication`], [`Refusal::Permissions`].
fn user_of(shared: &Shared, shown: Option<&HeaderValue>, must_be_unlimited: bool) -> Result<Bytes, Refusal> {
    if asks_for_nothing(shared) {
        return Ok(Bytes::from_static(DEFAULT));
    }
    let token = shared.settings.get(settings::HTTP_TOKEN);
    let is_token = |shown: &[u8]| {
        let is_equal = Digest::of(shown).is(&Digest::of(token.as_bytes()));
        !token.is_empty() && bool::from(is_equal)
    };
    let shown = shown.and_then(|shown| shown.to_str().ok()).unwrap_or_default();
    let bearer = shown.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let by_token = Ok(Bytes::from_static(TOKEN_USER));
    if bearer.is_some_and(|(_, shown)| is_token(shown.trim().as_bytes())) {
        return by_token;
    }
    match basic(shown) {
        // Browsers ask for a name and a password, so the token is a password as well.
        Some((_, password)) if is_token(&password) => by_token,
        Some((name, password)) => named(shared, &name, &password, must_be_unlimited),
        None => Err(Refusal::Authentication),
    }
}

/// The user whose password this is.
///
/// # Errors
/// [`Refusal::Authentication`]; [`Refusal::Permissions`] for a user without all permissions that must have them.
fn named(shared: &Shared, name: &[u8], password: &[u8], must_be_unlimited: bool) -> Result<Bytes, Refusal> {
    // A user without a password has shown nothing.
    let account =
        shared.access.acl.authenticate(name, password).filter(|account| !account.user().needs_none());
    let account = account.ok_or(Refusal::Authentication)?;
    // HTTP shows readers every lock.
    if must_be_unlimited && !account.is_unlimited() {
        return Err(Refusal::Permissions);
    }
    Ok(account.name().clone())
}

/// Who shows the token. A user of the ACL has no space in its name.
pub(super) const TOKEN_USER: &[u8] = b"HTTP token";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_for_an_address_for_localhost_or_for_a_listed_name() {
        let names = ["locks.example.com".to_owned()];
        for host in [
            "127.0.0.1", "127.0.0.1:80", "10.1.2.3:65535", "[::1]", "[fe80::1]:8080", "localhost",
            "LOCALHOST:1", "locks.example.com", "Locks.Example.Com:443",
        ] {
            assert!(is_own_host(host, &names), "{host}");
        }
        for host in [
            "", ":80", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "x@127.0.0.1",
            "::1", "[evil.example]", "locks.example.com.", "example.com", "127.0.0.1/", "0x7f.1",
            "2130706433", "a b",
        ] {
            assert!(!is_own_host(host, &names), "{host}");
        }
    }

    #[test]
    fn one_host_header_is_needed_and_a_target_must_agree_with_it() {
        let check = |hosts: &[&str], target: &str, version| {
            let mut request = Request::builder().uri(target).version(version);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            check_host(&request.body(()).unwrap(), &[])
        };
        let new = Version::HTTP_11;
        assert_eq!(check(&["localhost"], "/", new), Ok(()));
        assert_eq!(check(&["localhost"], "http://localhost/", new), Ok(()));
        assert_eq!(check(&["localhost"], "http://evil.example/", new), Err(Refusal::Host));
        assert_eq!(check(&["evil.example"], "/", new), Err(Refusal::Host));
        assert_eq!(check(&["evil.example"], "http://localhost/", new), Err(Refusal::Host));
        assert_eq!(check(&["localhost", "localhost"], "/", new), Err(Refusal::NoHost));
        assert_eq!(check(&[], "/", new), Err(Refusal::NoHost));
        assert_eq!(check(&[], "/", Version::HTTP_10), Ok(()));
    }

    #[test]
    fn a_change_comes_from_a_page_of_this_server_or_from_no_page() {
        let sent_from = |headers: &[(&str, &str)]| {
            let mut request = Request::builder().header(HOST, "localhost:80");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            is_cross_site(&request.body(()).unwrap())
        };
        let (site, origin) = ("sec-fetch-site", "origin");
        for own in [
            &[][..],
            &[(origin, "http://localhost:80")],
            &[(origin, "https://localhost:80")],
            &[(site, "none")],
            &[(site, "same-origin"), (origin, "http://localhost:80")],
        ] {
            assert!(!sent_from(own), "{own:?}");
        }
        for foreign in [
            &[(origin, "http://evil.example")][..],
            &[(origin, "null")],
            &[(origin, "http://localhost")],
            &[(origin, "")],
            &[(site, "cross-site")],
            &[(site, "same-site")],
            &[(site, "same-origin"), (origin, "http://evil.example")],
        ] {
            assert!(sent_from(foreign), "{foreign:?}");
        }
    }
}
