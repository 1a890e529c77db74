//! The parameters of a request's target.
//!
//! Rule    a parameter is bytes: `%ff` is one byte. A parameter that the route does not know is an error, and so is one that
//!         is given twice.

use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Request;
use percent_encoding::percent_decode;

use super::questions::ApiError;

/// What follows the `?`.
#[derive(Debug)]
pub(super) struct Parameters(Vec<(Vec<u8>, Vec<u8>)>);

impl Parameters {
    /// Reads the parameters, which must be among `known`.
    ///
    /// # Errors
    /// [`ApiError::Request`] for any other, or the second of one name.
    pub(super) fn of<B>(request: &Request<B>, known: &[&str]) -> Result<Self, ApiError> {
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for pair in request.uri().query().unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // A space is `+` or `%20`.
            let (name, value) = (decoded(&name.replace('+', " "))?, decoded(&value.replace('+', " "))?);
            if !known.iter().any(|known| known.as_bytes() == name) {
                let rule = match known {
                    [] => "this path has no parameters".to_owned(),
                    known => format!("must be one of {}", known.join(", ")),
                };
                return Err(ApiError::Request(format!("parameter '{}': {rule}", name.escape_ascii())));
            }
            if found.iter().any(|(other, _)| *other == name) {
                return Err(ApiError::Request(format!(
                    "parameter '{}': is given twice",
                    name.escape_ascii()
                )));
            }
            found.push((name, value));
        }
        Ok(Self(found))
    }

    /// The bytes of a parameter.
    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        let mut pairs = self.0.iter();
        pairs.find(|(found, _)| found == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// The number that a parameter is, in this range.
    ///
    /// # Errors
    /// [`ApiError::Request`] if it is none.
    pub(super) fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ApiError> {
        let Some(bytes) = self.bytes(name) else { return Ok(None) };
        let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<u64>().ok());
        let (least, most) = (range.start(), range.end());
        let wrong = || format!("parameter '{name}': must be a number from {least} to {most}");
        number.filter(|number| range.contains(number)).ok_or_else(|| ApiError::Request(wrong())).map(Some)
    }

    /// The key that the parameter `key` has, or in base64 `key_base64`.
    ///
    /// # Errors
    /// [`ApiError::Request`] if there is none.
    pub(super) fn key(&self) -> Result<Vec<u8>, ApiError> {
        let missing = || ApiError::Request("parameter 'key' or 'key_base64': must name a key".into());
        if self.bytes("key").and(self.bytes("key_base64")).is_some() {
            return Err(ApiError::Request("parameter 'key': is given twice, also as 'key_base64'".into()));
        }
        match self.bytes("key_base64") {
            Some(encoded) => STANDARD.decode(encoded).map_err(|_| missing()),
            None => self.bytes("key").map(<[u8]>::to_vec).ok_or_else(missing),
        }
    }
}

/// The bytes of a part of a target.
///
/// # Errors
/// [`ApiError::Request`] for a `%` that is no escape.
pub(super) fn decoded(part: &str) -> Result<Vec<u8>, ApiError> {
    let is_byte = |rest: &[u8]| rest.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    match part.split('%').skip(1).all(|rest| is_byte(rest.as_bytes())) {
        true => Ok(percent_decode(part.as_bytes()).collect()),
        false => Err(ApiError::Request("the target must have two hexadecimal digits after each %".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["key", "key_base64", "count"];

    fn of(target: &str) -> Result<Parameters, ApiError> {
        Parameters::of(&Request::builder().uri(target).body(()).unwrap(), KNOWN)
    }

    #[test]
    fn a_parameter_is_bytes() {
        let parameters = of("/api/lock?key=lock%3a%ff%00+x&count=7&").unwrap();
        assert_eq!(parameters.key().unwrap(), b"lock:\xff\x00 x");
        assert_eq!(parameters.number("count", 1..=7).unwrap(), Some(7));
        assert_eq!(of("/api/lock?key_base64=bG9jazr%2FAA%3D%3D").unwrap().key().unwrap(), b"lock:\xff\x00");
        assert_eq!(of("/api/lock?key").unwrap().key().unwrap(), b"");
        assert_eq!(of("/api/lock").unwrap().number("count", 1..=7).unwrap(), None);
    }

    #[test]
    fn what_a_route_does_not_know_is_refused() {
        for target in
            ["/?keys=a", "/?key=a&key=b", "/?=", "/?key=a&Key=b", "/?%ff=1", "/?key=%ZZ", "/?%", "/?key=%4"]
        {
            assert!(matches!(of(target), Err(ApiError::Request(_))), "{target}");
        }
        let said = |known| {
            let request = Request::builder().uri("/?x=1").body(()).unwrap();
            Parameters::of(&request, known).unwrap_err().text().to_owned()
        };
        assert_eq!(said(&["key", "count"]), "parameter 'x': must be one of key, count");
        assert_eq!(said(&[]), "parameter 'x': this path has no parameters");
        for target in ["/?count=8", "/?count=-1", "/?count=", "/?count=1e3", "/?count=%ff"] {
            assert!(of(target).unwrap().number("count", 1..=7).is_err(), "{target}");
        }
        for target in ["/", "/?key_base64=%3F", "/?key_base64=YQ%3D%3D&key=a"] {
            assert!(of(target).unwrap().key().is_err(), "{target}");
        }
    }
}
