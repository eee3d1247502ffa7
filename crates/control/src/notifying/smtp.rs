//! A mail to a mail server over SMTP (RFC 5321), with STARTTLS (RFC 3207) and AUTH PLAIN (RFC 4954).
//!
//! Each step has a time limit of its own: a server that looks into mail may answer its end late, and would have it twice if nobody
//! waited. With that answer the mail is delivered, whatever becomes of the connection.
//!
//! lettre's own transports open sockets of tokio themselves, which the simulated world does not have; so lettre composes the
//! mail, and this sends it.

use super::{
    composing::mail_address,
    delivery::{DeliveryFailure, DeliveryReceipt},
};
use std::{io, time::Duration};
use tls::ClientTls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Address, Network, Stream, World, with_deadline};

/// Bytes of a reply, at most.
const REPLY_BYTES_MAX: usize = 16 << 10;
/// Time to connect, and for TLS.
const CONNECTED_WITHIN: Duration = Duration::from_secs(30);
/// Time for the reply to a command.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// Time for the mail to be sent (RFC 5321, 4.5.3.2.5).
const SENT_WITHIN: Duration = Duration::from_secs(180);
/// Time for the reply to the end of the mail (RFC 5321, 4.5.3.2.6).
const TAKEN_WITHIN: Duration = Duration::from_secs(600);
/// Time to say goodbye.
const ENDED_WITHIN: Duration = Duration::from_secs(1);
/// Characters of a reply that are shown.
const SHOWN_CHARS_MAX: usize = 200;

/// The mail server, and the envelope.
pub(super) struct SmtpEnvelope<'a> {
    pub address: &'a Address,
    /// Mail goes over TLS, or not at all.
    pub tls: Option<&'a ClientTls>,
    pub login: Option<&'a (String, String)>,
    pub from: &'a str,
    pub to: &'a [String],
}

struct Conversation<'w> {
    world: &'w World,
    stream: Stream,
    /// Bytes that were read and not used.
    rest: Vec<u8>,
}

/// A reply of the server.
struct SmtpReply {
    code: u16,
    lines: Vec<String>,
}

/// Sends a mail, and waits until the server has taken it over, for one receiver at least.
pub(super) async fn send(
    (world, network): (&World, &dyn Network),
    envelope: &SmtpEnvelope<'_>,
    mail: &[u8],
) -> Result<DeliveryReceipt, DeliveryFailure> {
    let connecting = network.connect(envelope.address);
    let stream = within(world, CONNECTED_WITHIN, connecting).await?.map_err(|error| error.to_string())?;
    let mut server = Conversation { world, stream, rest: Vec::new() };
    server.reply(ANSWERED_WITHIN).await?.expect_code(220, "greeting")?;
    let mut offered = server.ask("EHLO spindle").await?.expect_code(250, "EHLO")?;
    if let Some(tls) = envelope.tls {
        if !offered.offers("STARTTLS") {
            return Err("the mail server offers no STARTTLS".into());
        }
        server.ask("STARTTLS").await?.expect_code(220, "STARTTLS")?;
        if !server.rest.is_empty() {
            // Somebody may have put it there before TLS began.
            return Err("the mail server sent something before TLS began".into());
        }
        let stream = within(world, CONNECTED_WITHIN, tls.connect(world, server.stream)).await?;
        let stream = stream.map_err(|error| format!("TLS: {error}"))?;
        server = Conversation { world, stream, rest: Vec::new() };
        offered = server.ask("EHLO spindle").await?.expect_code(250, "EHLO")?;
    }
    if let Some((user, password)) = envelope.login {
        if !offered.offers("AUTH") {
            return Err("the mail server takes no passwords here".into());
        }
        let plain = base64(format!("\0{user}\0{password}").as_bytes());
        server.ask(&format!("AUTH PLAIN {plain}")).await?.expect_code(235, "AUTH")?;
    }
    let from = mail_address(envelope.from);
    server.ask(&format!("MAIL FROM:<{from}>")).await?.expect_code(250, "MAIL FROM")?;
    let mut refused = Vec::new();
    for to in envelope.to {
        let reply = server.ask(&format!("RCPT TO:<{}>", mail_address(to))).await?;
        if reply.code != 251 {
            refused.extend(reply.expect_code(250, &format!("RCPT TO {to}")).err());
        }
    }
    if refused.len() == envelope.to.len() {
        return Err(refused.swap_remove(0).into());
    }
    server.ask("DATA").await?.expect_code(354, "DATA")?;
    let stuffed = stuffed(mail);
    within(world, SENT_WITHIN, server.write(&stuffed)).await??;
    let reply = server.reply(TAKEN_WITHIN).await?;
    let is_for_good = reply.code >= 500;
    reply.expect_code(250, "the mail").map_err(|why| DeliveryFailure { why, is_for_good })?;
    // It has the mail; how the conversation ends does not matter.
    let _ = within(world, ENDED_WITHIN, server.write(b"QUIT\r\n")).await;
    Ok(DeliveryReceipt { refused })
}

async fn within<T>(world: &World, time: Duration, work: impl Future<Output = T>) -> Result<T, String> {
    let answered = with_deadline(world.sleep(time), work).await;
    answered.ok_or_else(|| format!("the mail server did not answer within {} s", time.as_secs()))
}

impl Conversation<'_> {
    async fn ask(&mut self, command: &str) -> Result<SmtpReply, String> {
        let line = format!("{command}\r\n");
        within(self.world, ANSWERED_WITHIN, self.write(line.as_bytes())).await??;
        self.reply(ANSWERED_WITHIN).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let written = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        written.await.map_err(|error: io::Error| error.to_string())
    }

    async fn reply(&mut self, time: Duration) -> Result<SmtpReply, String> {
        within(self.world, time, self.whole_reply()).await?
    }

    async fn whole_reply(&mut self) -> Result<SmtpReply, String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            let code = line.get(..3).and_then(|code| code.parse().ok());
            let code = code.ok_or_else(|| format!("the mail server answered {:?}", shown(&line)))?;
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(SmtpReply { code, lines });
            }
            if lines.len() > 100 {
                return Err("the mail server's answer has no end".to_owned());
            }
        }
    }

    async fn line(&mut self) -> Result<String, String> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.rest.len() > REPLY_BYTES_MAX {
                return Err("the mail server's answer has no end".to_owned());
            }
            let mut some = [0; 1024];
            match self.stream.read(&mut some).await.map_err(|error| error.to_string())? {
                0 => return Err("the mail server closed the connection".to_owned()),
                count => self.rest.extend_from_slice(&some[..count]),
            }
        }
    }
}

impl SmtpReply {
    fn expect_code(self, code: u16, what: &str) -> Result<Self, String> {
        if self.code == code {
            return Ok(self);
        }
        Err(format!("the mail server refused {what}: {} {}", self.code, shown(&self.lines.join(" "))))
    }

    fn offers(&self, extension: &str) -> bool {
        self.lines
            .iter()
            .any(|line| line.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case(extension)))
    }
}

fn shown(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(SHOWN_CHARS_MAX).collect()
}

/// A mail with its end, and the dots at the beginning of its lines doubled (RFC 5321, 4.5.2).
fn stuffed(mail: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(mail.len() + 16);
    let mut is_at_start = true;
    for &byte in mail {
        if is_at_start && byte == b'.' {
            bytes.push(b'.');
        }
        bytes.push(byte);
        is_at_start = byte == b'\n';
    }
    bytes.extend_from_slice(if is_at_start { b".\r\n" } else { b"\r\n.\r\n" });
    bytes
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0u32, |group, &byte| group << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(group >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_at_the_beginning_of_lines_are_doubled() {
        assert_eq!(stuffed(b"a\r\n.\r\n..b\r\n"), b"a\r\n..\r\n...b\r\n.\r\n");
        assert_eq!(stuffed(b".a"), b"..a\r\n.\r\n");
    }

    #[test]
    fn passwords_are_encoded_as_rfc_4648_says() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
