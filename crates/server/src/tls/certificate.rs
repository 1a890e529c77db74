//! What is read from certificates: the names of users (`tls-auth-clients-user`), and until when one is valid.
//!
//! Rule    a certificate that comes here is valid. What is strange in it names nobody, and has no end.
//! Source  RFC 5280, 4.1 and 4.1.2.5: dates, 4.1.2.4 and 4.2.1.6: names; Redis 8.6 `tls.c`: the common name; Valkey 9.1
//!         `tls.c`: URIs.

use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// What names the user in a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NamedBy {
    /// The first common name of the subject.
    CommonName,
    /// A URI among the alternative names of the subject.
    Uri,
}

impl NamedBy {
    /// From a value of the setting; `off` is none.
    pub(super) fn of(value: &str) -> Option<Self> {
        match value {
            "CN" => Some(Self::CommonName),
            "URI" => Some(Self::Uri),
            _ => None,
        }
    }

    /// The names in the certificate, in its order.
    pub(super) fn names(self, certificate: &CertificateDer<'_>) -> Vec<Vec<u8>> {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Vec::new() };
        match self {
            Self::CommonName => common_name(certificate.subject()).into_iter().collect(),
            Self::Uri => certificate.valid_uri_names().map(|uri| uri.as_bytes().to_vec()).collect(),
        }
    }
}

/// Until when a certificate is valid: seconds of Unix, 0 for all before 1970. `None` if it does not say so in the form of
/// RFC 5280.
pub(super) fn not_after(certificate: &CertificateDer<'_>) -> Option<u64> {
    let (_, certificate) = Elements(certificate).next()?;
    let (_, signed) = Elements(certificate).next()?;
    // The serial number, the algorithm and the issuer come before.
    let (_, validity) = Elements(signed).filter(|(tag, _)| *tag != VERSION).nth(3)?;
    let (tag, date) = Elements(validity).nth(1)?;
    let date = str::from_utf8(date).ok()?.strip_suffix('Z')?;
    let (year, rest) = date.split_at_checked(if tag == UTC_TIME { 2 } else { 4 })?;
    let mut year: i64 = year.parse().ok()?;
    if tag == UTC_TIME {
        year += if year < 50 { 2000 } else { 1900 };
    }
    let mut fields = (0..5).map(|at| rest.get(2 * at..2 * at + 2)?.parse::<i64>().ok());
    let mut field = || fields.next().flatten();
    let days = days_since_1970(year, field()?, field()?);
    let seconds = ((days * 24 + field()?) * 60 + field()?) * 60 + field()?;
    Some(u64::try_from(seconds).unwrap_or(0))
}

/// Days of the Gregorian calendar. Years are counted from March on, so that a leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469
}

/// Tags of DER.
const SET: u8 = 0x31;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
/// The version of a certificate, which one of version 1 lacks.
const VERSION: u8 = 0xa0;
/// The identifier of common names, 2.5.4.3, with its tag and length.
const COMMON_NAME: [u8; 5] = [6, 3, 0x55, 4, 3];

/// The first common name of a subject: a sequence of sets of pairs, each an identifier and a string.
fn common_name(subject: &[u8]) -> Option<Vec<u8>> {
    let sets = Elements(subject).filter(|(tag, _)| *tag == SET);
    let mut pairs = sets.flat_map(|(_, set)| Elements(set)).filter(|(tag, _)| *tag == SEQUENCE);
    let string = pairs.find_map(|(_, pair)| pair.strip_prefix(&COMMON_NAME))?;
    Elements(string).next().map(|(_, name)| name.to_vec())
}

/// The elements of a sequence or set in DER: tag and content of each. It ends before one that is malformed.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[tag, length], rest) = self.0.split_first_chunk()?;
        // From 128 on, the byte says how many bytes the length has: no certificate needs more than two.
        let (length, rest) = match (length, rest) {
            (0..=127, rest) => (usize::from(length), rest),
            (0x81, [length, rest @ ..]) => (usize::from(*length), rest),
            (0x82, [high, low, rest @ ..]) => (usize::from(u16::from_be_bytes([*high, *low])), rest),
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        let head = match length {
            [0, low @ 0..=127] => vec![tag, low],
            [0, low] => vec![tag, 0x81, low],
            [high, low] => vec![tag, 0x82, high, low],
        };
        [&head[..], content].concat()
    }

    /// A set with one name; the identifier is 2.5.4.`kind`.
    fn set(kind: u8, name: &[u8]) -> Vec<u8> {
        element(SET, &element(SEQUENCE, &[&[6, 3, 0x55, 4, kind], &element(0x0c, name)[..]].concat()))
    }

    #[test]
    fn the_end_of_a_certificate_is_read_from_both_forms_of_a_date() {
        for (year, month, day, seconds) in [
            (1960, 1, 1, 0),
            (1970, 1, 1, 0),
            (2000, 2, 29, 951_782_400),
            (2026, 11, 30, 1_795_996_800),
            (2049, 12, 31, 2_524_521_600),
            (2050, 1, 1, 2_524_608_000),
            (2100, 3, 1, 4_107_542_400),
            (9999, 12, 31, 253_402_214_400),
        ] {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, month, day);
            let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            assert_eq!(not_after(made.der()), Some(seconds), "{year}-{month}-{day}");
            // One that is cut short has no end, and stops nothing.
            (0..made.der().len()).for_each(|length| {
                not_after(&made.der()[..length].into());
            });
        }
    }

    #[test]
    fn the_first_common_name_is_found_among_others_whatever_its_length() {
        for length in [0, 1, 127, 128, 255, 256, 60_000] {
            let name = vec![b'x'; length];
            let subject = [set(10, b"an organisation"), set(3, &name), set(3, b"another")].concat();
            assert_eq!(common_name(&subject), Some(name), "{length}");
        }
        assert_eq!(common_name(&set(10, b"an organisation")), None);
        assert_eq!(common_name(b""), None);
    }

    #[test]
    fn a_name_with_a_zero_is_not_cut_there() {
        assert_eq!(common_name(&set(3, b"admin\0.example")), Some(b"admin\0.example".to_vec()));
    }

    #[test]
    fn a_subject_that_is_cut_short_names_nobody() {
        let subject = set(3, &[b'x'; 300]);
        for length in 0..subject.len() {
            assert_eq!(common_name(&subject[..length]), None, "{length}");
        }
        for length in [0x80, 0x83, 0x84, 0xff] {
            assert_eq!(common_name(&[SET, length, 1, 1, 1, 1]), None);
        }
    }
}
