//! Signatures of requests, AWS Signature Version 4 for S3.
//!
//! Source: "Authenticating Requests: Using the Authorization Header", Amazon S3 API Reference.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Keys of an account. `Debug` does not show them.
#[derive(Clone)]
pub struct S3Credentials {
    pub key_id: String,
    pub secret: String,
    /// Of temporary credentials.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("S3Credentials(secret)")
    }
}

/// A request to be signed.
pub struct SignedParts<'a> {
    pub method: &'a str,
    /// Encoded.
    pub path: &'a str,
    /// Names and values, not encoded.
    pub query: &'a [(&'a str, String)],
    /// Names in lower case and values, host among them; all are signed.
    pub headers: &'a [(&'a str, String)],
    /// SHA-256 of the body, hexadecimal.
    pub body_sum: &'a str,
    /// `20261128T213000Z`.
    pub time: &'a str,
    pub region: &'a str,
}

impl SignedParts<'_> {
    /// The value of the header `authorization`.
    pub fn authorization(&self, credentials: &S3Credentials) -> String {
        let mut headers: Vec<&(&str, String)> = self.headers.iter().collect();
        headers.sort();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: String =
            headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let Self { method, path, body_sum, time, region, .. } = self;
        let canonical = format!("{method}\n{path}\n{}\n{lines}\n{names}\n{body_sum}", query_text(self.query));
        let date = &time[..8];
        let scope = format!("{date}/{region}/s3/aws4_request");
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let first = format!("AWS4{}", credentials.secret).into_bytes();
        let parts = [date, region, "s3", "aws4_request", &text];
        let signature = parts.iter().fold(first, |key, part| keyed(&key, part));
        let (id, signature) = (&credentials.key_id, hex(&signature));
        format!("AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders={names},Signature={signature}")
    }
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("strings take all");
        text
    })
}

/// Percent-encodes all but unreserved characters; slashes stay in paths.
pub fn encode(text: &str, is_path: bool) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            b'/' if is_path => encoded.push('/'),
            _ => write!(encoded, "%{byte:02X}").expect("strings take all"),
        }
        encoded
    })
}

/// The query of a URI, in the order that is signed.
pub fn query_text(query: &[(&str, String)]) -> String {
    let pairs = query.iter().map(|(name, value)| format!("{}={}", encode(name, false), encode(value, false)));
    let mut pairs: Vec<String> = pairs.collect();
    pairs.sort();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        method: &str,
        path: &str,
        query: &[(&str, String)],
        more: &[(&str, &str)],
        body: &[u8],
        expected: &str,
    ) {
        let credentials = S3Credentials {
            key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let (time, body_sum) = ("20130524T000000Z", hex(&Sha256::digest(body)));
        let mut headers = vec![
            ("host", "examplebucket.s3.amazonaws.com".to_owned()),
            ("x-amz-content-sha256", body_sum.clone()),
            ("x-amz-date", time.to_owned()),
        ];
        headers.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let (headers, body_sum, region) = (&headers[..], &*body_sum, "us-east-1");
        let parts = SignedParts { method, path, query, headers, body_sum, time, region };
        let signed = parts.authorization(&credentials);
        assert!(signed.ends_with(&format!("Signature={expected}")), "{signed}");
    }

    #[test]
    fn signatures_are_those_of_the_documents_examples() {
        let range = ("range", "bytes=0-9");
        let get = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        check("GET", "/test.txt", &[], &[range], b"", get);
        let more = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        let put = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        check("PUT", "/test%24file.text", &[], &more, b"Welcome to Amazon S3.", put);
        let list = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        check("GET", "/", &[("prefix", "J".into()), ("max-keys", "2".into())], &[], b"", list);
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!((encode("a b/ü", true), encode("a/b", false)), ("a%20b/%C3%BC".into(), "a%2Fb".into()));
    }
}
