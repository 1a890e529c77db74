//! What is said of certificates that cannot be used.

/// The text of a TLS error, with words in place of the name that the TLS library has for certificates of X.509 version 1.
pub fn in_words(text: String) -> String {
    if text.contains("UnsupportedCertVersion") { OF_VERSION_1.to_owned() } else { text }
}

/// `openssl x509 -req` makes such certificates unless it is told of extensions.
const OF_VERSION_1: &str = "a certificate of X.509 version 1 cannot be used: make one of version 3, with extensions, \
                            by openssl x509 -req -extfile";
