//! A browser without scripts, for the console: over a port, or over the socket of a server.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// Most bytes of a page.
const PAGE_BYTES_MAX: usize = 300_000;
/// A change of a group may take as long.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// The way to a console.
pub struct Browser {
    /// `HOST:PORT`; any name over a socket.
    pub address: String,
    socket: Option<PathBuf>,
}

/// An answer of the console.
pub struct Page {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub text: String,
}

impl Browser {
    pub fn of_port(address: &str) -> Self {
        Self { address: address.to_owned(), socket: None }
    }

    /// Over the socket the server's own user is an admin, without a session.
    pub fn of_socket(socket: &Path) -> Self {
        Self { address: "localhost".to_owned(), socket: Some(socket.to_owned()) }
    }

    pub fn get(&self, path: &str, cookie: &str) -> Page {
        self.send(&format!("GET {path} HTTP/1.1\r\nCookie: {cookie}\r\n"), "")
    }

    /// Sends a form as a browser does that shows a page of this server.
    pub fn post(&self, path: &str, cookie: &str, fields: &[(&str, &str)]) -> Page {
        self.post_from(&format!("http://{}", self.address), path, cookie, fields)
    }

    pub fn post_from(&self, origin: &str, path: &str, cookie: &str, fields: &[(&str, &str)]) -> Page {
        let body: Vec<String> =
            fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nCookie: {cookie}\r\nOrigin: {origin}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        );
        self.send(&head, &body.join("&"))
    }

    pub fn send(&self, head: &str, body: &str) -> Page {
        let request = format!(
            "{head}Host: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let answer = match &self.socket {
            None => {
                let mut stream = TcpStream::connect(&self.address).unwrap();
                stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
                exchange(&mut stream, &request)
            }
            Some(socket) => {
                let mut stream = UnixStream::connect(socket).unwrap();
                stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
                exchange(&mut stream, &request)
            }
        };
        let (head, text) = answer.split_once("\r\n\r\n").expect(&answer);
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        Page { status, headers, text: text.to_owned() }
    }
}

fn exchange(stream: &mut (impl Read + Write), request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

impl Page {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Values of an attribute, wherever it is.
    pub fn values(&self, attribute: &str) -> Vec<String> {
        let begin = format!(" {attribute}=\"");
        let parts = self.text.split(&begin).skip(1);
        parts.map(|part| part.split('"').next().unwrap().replace("&#38;", "&")).collect()
    }

    /// The value of a hidden field of the form with an action.
    pub fn field(&self, action: &str, name: &str) -> String {
        let form = self.text.split(&format!("method=\"post\" action=\"{action}\"")).nth(1).expect(action);
        let field = form.split(&format!("name=\"{name}\" value=\"")).nth(1).expect(name);
        field.split('"').next().unwrap().replace("&#34;", "\"")
    }

    /// Checks what holds for every page.
    #[track_caller]
    pub fn check(&self, path: &str) {
        assert_eq!(self.status, 200, "{path}: {}", self.text);
        assert!(self.text.len() < PAGE_BYTES_MAX, "{path}: {} bytes", self.text.len());
        let policy = self.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(self.header("cache-control"), "no-store", "{path}");
        assert_eq!(self.header("x-content-type-options"), "nosniff", "{path}");
        for inline in ["<script>", " style=", "<style", " onclick=", "javascript:"] {
            assert!(!self.text.contains(inline), "{path}: {inline}");
        }
        for attribute in ["href", "src", "action"] {
            let elsewhere = self.values(attribute).into_iter().find(|link| !link.starts_with(['/', '#']));
            assert_eq!(elsewhere, None, "{path}: a link to another server");
        }
        assert!(self.text.contains("<html lang=\"en\">") && self.text.contains("<h1>"), "{path}");
    }
}

/// A value in a form.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let sign = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(sign).collect()
}
