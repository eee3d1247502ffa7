//! The notifiers of a site file: checked, with their secrets read.

use crate::hexadecimal::hexadecimal;
use plan::site::{Site, SiteNotifier};
use report::{Refusal, Severity};
use ring::{digest, hmac};
use serving::export::read_secret;
use std::{collections::BTreeMap, fmt, path::Path, sync::Arc, time::Duration};
use tls::ClientTls;
use world::{Address, real::host_files};

const SMTP_PORT: u16 = 25;
const AUTHORITY_BYTES_MAX: u64 = 4 << 20;
const FALLBACK_MINUTES_USUAL: u32 = 10;

/// Somebody who is to be told of events.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedNotifier {
    pub name: String,
    pub channel: Arc<NotifierChannel>,
    /// The least one that is told.
    pub severity: Severity,
    /// Time of day of the digest, in UTC.
    pub digest: Option<Duration>,
    /// Notifier whose channel takes over.
    pub fallback: Option<String>,
    pub fallback_after: Duration,
}

/// A way out.
pub enum NotifierChannel {
    Webhook {
        address: Address,
        /// Value of the header Host.
        host: String,
        /// With its query.
        path: String,
        tls: Option<ClientTls>,
        secret: Option<hmac::Key>,
        text: String,
        secrets: SecretsDigest,
    },
    Mail {
        address: Address,
        /// STARTTLS.
        tls: Option<ClientTls>,
        /// User and password.
        login: Option<(String, String)>,
        from: String,
        to: Vec<String>,
        text: String,
        secrets: SecretsDigest,
    },
}

/// SHA-256 of all that is secret: two of the same text differ by it.
type SecretsDigest = Vec<u8>;

impl NotifierChannel {
    /// The channel in words, without secrets.
    pub fn text(&self) -> &str {
        match self {
            Self::Webhook { text, .. } | Self::Mail { text, .. } => text,
        }
    }

    fn secrets(&self) -> &SecretsDigest {
        match self {
            Self::Webhook { secrets, .. } | Self::Mail { secrets, .. } => secrets,
        }
    }
}

impl fmt::Debug for NotifierChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl PartialEq for NotifierChannel {
    fn eq(&self, other: &Self) -> bool {
        (self.text(), self.secrets()) == (other.text(), other.secrets())
    }
}

const AUTHORITY_NEEDED: &str = "say ca_file = \"FILE\" with the certificate of the authority of that server";

/// The notifiers of a site, in its order. Without `has_secrets` no file is read, and none can deliver.
///
/// # Errors
///
/// A notifier lacks something, or would send secrets in the clear; a file cannot be read.
pub(crate) fn wanted_notifiers(
    site: &Site,
    (folder, has_secrets): (&Path, bool),
) -> Result<Vec<WantedNotifier>, Refusal> {
    site.notifiers.iter().map(|one| wanted(one, (folder, has_secrets))).collect()
}

/// The notifiers in words, by kind and name.
pub(crate) fn notifier_texts(notifiers: &[WantedNotifier]) -> BTreeMap<(&'static str, String), String> {
    let text = |one: &WantedNotifier| {
        let mut text = format!("{}, from {} on", one.channel.text(), one.severity.word());
        if let Some(digest) = one.digest {
            let minutes = digest.as_secs() / 60;
            text += &format!("; digest at {:02}:{:02}", minutes / 60, minutes % 60);
        }
        if let Some(fallback) = &one.fallback {
            text += &format!("; {fallback} after {} min", one.fallback_after.as_secs() / 60);
        }
        (("notifier", one.name.clone()), text)
    };
    notifiers.iter().map(text).collect()
}

fn wanted(one: &SiteNotifier, files: (&Path, bool)) -> Result<WantedNotifier, Refusal> {
    let name = &one.name;
    let refuse = |problem: &str, next: &str| Err(Refusal::new(format!("notifier {name:?}: {problem}"), next));
    let channel = match one.kind.as_str() {
        "webhook" => webhook(one, files)?,
        "mail" => mail(one, files)?,
        "" => return refuse("it says no kind", "say kind = \"webhook\" or kind = \"mail\""),
        kind => {
            return refuse(
                &format!("there is no kind {kind:?}"),
                "say webhook or mail; programs follow with 'spindle event --follow --exec'",
            );
        }
    };
    let severity = match one.severity.as_str() {
        "" | "warning" => Severity::Warning,
        "note" => Severity::Note,
        "error" => Severity::Error,
        other => {
            return refuse(&format!("there is no severity {other:?}"), "say note, warning or error");
        }
    };
    let digest = match one.digest.as_str() {
        "" => None,
        text => match time_of_day(text) {
            Some(time) => Some(time),
            None => return refuse(&format!("{text:?} is no time"), "say digest = \"07:00\", in UTC"),
        },
    };
    if one.fallback == *name {
        return refuse("it is its own fallback", "name another notifier");
    }
    let minutes = one.fallback_minutes.unwrap_or(FALLBACK_MINUTES_USUAL);
    Ok(WantedNotifier {
        name: name.clone(),
        channel: Arc::new(channel),
        severity,
        digest,
        fallback: Some(one.fallback.clone()).filter(|fallback| !fallback.is_empty()),
        fallback_after: Duration::from_secs(u64::from(minutes) * 60),
    })
}

fn time_of_day(text: &str) -> Option<Duration> {
    let (hours, minutes) = text.split_once(':')?;
    let is_plain = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(hours) || !is_plain(minutes) {
        return None;
    }
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours < 24 && minutes < 60).then(|| Duration::from_secs(hours * 3600 + minutes * 60))
}

fn webhook(one: &SiteNotifier, (folder, has_secrets): (&Path, bool)) -> Result<NotifierChannel, Refusal> {
    let refuse =
        |problem: String, next: &str| Refusal::new(format!("notifier {:?}: {problem}", one.name), next);
    let unused = [("smtp", &one.smtp), ("user", &one.user), ("from", &one.from)];
    if let Some((key, _)) = unused.iter().find(|(_, value)| !value.is_empty()) {
        return Err(refuse(format!("a webhook has no {key}"), "leave it out, or say kind = \"mail\""));
    }
    if one.tls || one.unencrypted || !one.to.is_empty() {
        return Err(refuse("a webhook has neither to nor tls".to_owned(), "its URL says both"));
    }
    let url = match (&*one.url, &*one.url_file) {
        (url, "") => url.to_owned(),
        ("", file) if has_secrets => {
            let url = read_secret(&folder.join(file), "write the URL of the webhook")?;
            String::from_utf8(url).map_err(|_| refuse("its URL is no text".to_owned(), "correct url_file"))?
        }
        ("", _) => "https://localhost".to_owned(),
        _ => return Err(refuse("it has two URLs".to_owned(), "say url or url_file")),
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("", ""));
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => {
            let problem = "what it says is no URL of a webhook".to_owned();
            return Err(refuse(problem, "say url = \"https://HOST/PATH\""));
        }
    };
    let split = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(split);
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if host.is_empty() || host.contains('@') || !is_plain(rest) || path.contains('#') {
        let problem = "what it says is no URL of a webhook".to_owned();
        return Err(refuse(problem, "say url = \"https://HOST/PATH\", without user, blanks or #"));
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let address = Address::parse(host, port)
        .map_err(|error| refuse(format!("url: {error}"), "say url = \"https://HOST:PORT/PATH\""))?;
    if scheme == "http" && !address.is_local() {
        return Err(refuse(
            format!("{scheme}://{host} would tell everyone on the way what happens here"),
            "say https, or http to a loopback address",
        ));
    }
    let is_encrypted = scheme == "https";
    let authority = authority_of(one, (folder, is_encrypted && has_secrets))?;
    let tls = (is_encrypted && has_secrets).then(|| client_tls(one, &address, authority.as_deref()));
    let tls = tls.transpose()?;
    let secret = (has_secrets && !one.secret_file.is_empty())
        .then(|| read_secret(&folder.join(&one.secret_file), "write the secret that the receiver has"))
        .transpose()?;
    let signed = if one.secret_file.is_empty() { ", unsigned" } else { "" };
    let text = match &*one.url_file {
        "" => format!("webhook {}{signed}", shown_url(scheme, host, &path)),
        file => format!("webhook of {file}{signed}"),
    };
    let secrets = secrets_digest([url.as_bytes(), bytes_of(&secret), bytes_of(&authority)]);
    let secret = secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, &secret));
    Ok(NotifierChannel::Webhook { address, host: host.to_owned(), path, tls, secret, text, secrets })
}

/// A URL as everybody may see it: paths of webhooks are passwords with some services. Two paths are told apart.
fn shown_url(scheme: &str, host: &str, path: &str) -> String {
    if path == "/" {
        return format!("{scheme}://{host}");
    }
    let digest = digest::digest(&digest::SHA256, path.as_bytes());
    format!("{scheme}://{host}/… (path {})", hexadecimal(&digest.as_ref()[..4]))
}

/// A site's text with the URLs of its webhooks as everybody may see them. It cannot be applied.
///
/// # Errors
///
/// It is no site file.
pub(crate) fn without_urls(text: &str) -> Result<String, Refusal> {
    let mut site = crate::site::server::parse(text)?;
    for notifier in &mut site.notifiers {
        let Some((scheme, rest)) = notifier.url.split_once("://") else { continue };
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        notifier.url = shown_url(scheme, host, &path);
    }
    Ok(site.to_toml())
}

fn secrets_digest(parts: [&[u8]; 3]) -> SecretsDigest {
    let mut all = digest::Context::new(&digest::SHA256);
    for part in parts {
        all.update(&part.len().to_le_bytes());
        all.update(part);
    }
    all.finish().as_ref().to_vec()
}

fn bytes_of(file: &Option<Vec<u8>>) -> &[u8] {
    file.as_deref().unwrap_or_default()
}

/// The certificate of the receiver's authority; `None` if the machine's own authorities count.
fn authority_of(one: &SiteNotifier, (folder, is_needed): (&Path, bool)) -> Result<Option<Vec<u8>>, Refusal> {
    if !is_needed || one.ca_file.is_empty() {
        return Ok(None);
    }
    let read = host_files::read_at_most(&folder.join(&one.ca_file), AUTHORITY_BYTES_MAX);
    read.map(Some)
        .map_err(|error| Refusal::new(format!("notifier {:?}: {error}", one.name), AUTHORITY_NEEDED))
}

fn mail(one: &SiteNotifier, (folder, has_secrets): (&Path, bool)) -> Result<NotifierChannel, Refusal> {
    let refuse =
        |problem: String, next: &str| Refusal::new(format!("notifier {:?}: {problem}", one.name), next);
    if !one.url.is_empty() || !one.url_file.is_empty() {
        return Err(refuse("mail has no url".to_owned(), "say smtp = \"HOST:PORT\""));
    }
    if one.smtp.is_empty() || one.from.is_empty() || one.to.is_empty() {
        let problem = "mail needs smtp, from and to".to_owned();
        return Err(refuse(problem, "say smtp = \"HOST:PORT\", from = \"ADDRESS\", to = [\"ADDRESS\"]"));
    }
    for address in one.to.iter().chain([&one.from]) {
        super::composing::check_mailbox(address)
            .map_err(|why| refuse(format!("{address:?} is no mail address: {why}"), "say NAME@HOST"))?;
    }
    let address = Address::parse(&one.smtp, SMTP_PORT)
        .map_err(|error| refuse(format!("smtp: {error}"), "say smtp = \"HOST:PORT\""))?;
    if one.user.is_empty() != one.secret_file.is_empty() {
        return Err(refuse("user and secret_file go together".to_owned(), "give both, or none"));
    }
    if !one.user.is_empty() && !one.tls && !address.is_local() {
        return Err(refuse("its password would pass the network in the clear".to_owned(), "say tls = true"));
    }
    if !one.tls && !one.unencrypted && !address.is_local() {
        let problem = format!("mail to {address} would pass the network in the clear");
        return Err(refuse(
            problem,
            "say tls = true; or unencrypted = true, if everyone on the way may read it",
        ));
    }
    let secret = (has_secrets && !one.user.is_empty())
        .then(|| read_secret(&folder.join(&one.secret_file), "write the password of that user"))
        .transpose()?;
    let authority = authority_of(one, (folder, one.tls && has_secrets))?;
    let secrets = secrets_digest([b"", bytes_of(&secret), bytes_of(&authority)]);
    let login = match secret.map(String::from_utf8) {
        Some(Ok(secret)) => Some((one.user.clone(), secret)),
        Some(Err(_)) => return Err(refuse("its password is no text".to_owned(), "use another")),
        None => None,
    };
    let tls =
        (one.tls && has_secrets).then(|| client_tls(one, &address, authority.as_deref())).transpose()?;
    let over = match (one.tls, address.is_local()) {
        (true, _) => " over TLS",
        (false, true) => "",
        (false, false) => ", unencrypted",
    };
    let text = format!("mail to {} by {address}{over}", one.to.join(", "));
    let (from, to) = (one.from.clone(), one.to.clone());
    Ok(NotifierChannel::Mail { address, tls, login, from, to, text, secrets })
}

fn client_tls(one: &SiteNotifier, address: &Address, authority: Option<&[u8]>) -> Result<ClientTls, Refusal> {
    let refuse =
        |problem: String, next: &str| Refusal::new(format!("notifier {:?}: {problem}", one.name), next);
    let Address::Tcp { host, .. } = address else {
        return Err(refuse("TLS needs a host".to_owned(), "say HOST:PORT"));
    };
    let made = match authority {
        None => ClientTls::trusting_system(host),
        Some(authority) => ClientTls::new(host, authority, None),
    };
    made.map_err(|error| refuse(error.to_string(), AUTHORITY_NEEDED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<WantedNotifier>, String> {
        let site = Site::from_toml(text).map_err(|error| error.to_string())?;
        wanted_notifiers(&site, (Path::new("/etc/spindle"), false)).map_err(|refusal| refusal.to_string())
    }

    const WEBHOOK: &str = "[[notify]]\nname = 'ops'\nkind = 'webhook'\nurl = 'http://127.0.0.1:8080/hook?a=b'\nsecret_file = 's'\n";
    const MAIL: &str = "[[notify]]\nname = 'post'\nkind = 'mail'\nsmtp = 'mail.example.org'\nunencrypted = true\n\
                        from = 'spindle@example.org'\nto = ['ops@example.org']\n";

    #[test]
    fn notifiers_are_read_with_what_is_usual() {
        let text = format!("{WEBHOOK}fallback = 'post'\n{MAIL}severity = 'error'\ndigest = '07:00'\n");
        let wanted = read(&text).unwrap();
        let texts: Vec<String> = notifier_texts(&wanted).into_values().collect();
        assert_eq!(
            texts,
            [
                "webhook http://127.0.0.1:8080/… (path 2c036d47), from warning on; post after 10 min",
                "mail to ops@example.org by mail.example.org:25, unencrypted, from error on; digest at 07:00",
            ]
        );
        let NotifierChannel::Webhook { address, host, path, .. } = &*wanted[0].channel else { panic!() };
        let parts = (address.to_string(), host.as_str(), path.as_str());
        assert_eq!(parts, ("127.0.0.1:8080".to_owned(), "127.0.0.1:8080", "/hook?a=b"));
    }

    #[test]
    fn what_cannot_work_or_would_tell_secrets_is_refused_with_what_to_do() {
        for (from, to, problem) in [
            ("http://127.0.0.1:8080", "http://10.0.0.1", "say https, or http to a loopback address"),
            ("http://", "ftp://", "is no URL of a webhook"),
            ("kind = 'webhook'", "", "it says no kind"),
            ("'webhook'", "'exec'", "there is no kind \"exec\"; say webhook or mail; programs follow with"),
            ("name = 'ops'", "name = 'ops'\nfallback = 'ops'", "it is its own fallback"),
            ("name = 'ops'", "name = 'ops'\nseverity = 'info'", "there is no severity \"info\""),
            ("name = 'ops'", "name = 'ops'\ndigest = '7:00'", "\"7:00\" is no time"),
            ("name = 'ops'", "name = 'ops'\ndigest = '24:00'", "\"24:00\" is no time"),
            ("name = 'ops'", "name = 'ops'\nuser = 'x'", "a webhook has no user"),
            ("name = 'ops'", "name = 'ops'\nurl_file = 'u'", "it has two URLs"),
        ] {
            let refused = read(&WEBHOOK.replacen(from, to, 1)).unwrap_err();
            assert!(refused.starts_with("notifier \"ops\": ") && refused.contains(problem), "{refused}");
        }
        for (from, to, problem) in [
            ("'ops@example.org'", "'ops at example'", "is no mail address"),
            ("smtp =", "user = 'u'\nsecret_file = 's'\nsmtp =", "in the clear; say tls = true"),
            ("smtp =", "user = 'u'\nsmtp =", "user and secret_file go together"),
            ("to = ['ops@example.org']", "", "mail needs smtp, from and to"),
            ("unencrypted = true\n", "", "in the clear; say tls = true; or unencrypted = true"),
            ("smtp =", "url_file = 'u'\nsmtp =", "mail has no url"),
        ] {
            let refused = read(&MAIL.replacen(from, to, 1)).unwrap_err();
            assert!(refused.starts_with("notifier \"post\": ") && refused.contains(problem), "{refused}");
        }
    }

    #[test]
    fn nobody_is_told_the_path_of_a_webhook_and_another_one_is_a_change() {
        let texts = |text: &str| notifier_texts(&read(text).unwrap()).into_values().next().unwrap();
        let (one, other) = (texts(WEBHOOK), texts(&WEBHOOK.replace("hook?a=b", "hook?a=c")));
        assert!(one != other && !one.contains("/hook") && !other.contains("a=c"), "{one} {other}");
        let refused = read(&WEBHOOK.replace("http://127.0.0.1:8080", "http://10.0.0.1")).unwrap_err();
        assert!(!refused.contains("a=b"), "{refused}");
        let shown = without_urls(WEBHOOK).unwrap();
        assert!(shown.contains("http://127.0.0.1:8080/…") && !shown.contains("a=b"), "{shown}");
        assert!(read(&shown).is_err(), "it is not applied by mistake");
    }
}
