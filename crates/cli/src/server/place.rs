//! The place of a server, as arguments.

use super::connection::ServerConnection;
use crate::{command_line::quoted, site::socket_of, state_folder::state_folder};
use clap::Args;
use control::site::wanted::API_PORT;
use report::Refusal;
use serving::certificates;
use std::path::{Path, PathBuf};
use tls::ClientTls;
use world::{Address, World, real::host_files};

/// More than a token and its line end have.
const TOKEN_BYTES_MAX: u64 = 4096;

/// A server by the address of its API.
#[derive(Clone, Debug, Default, Args)]
pub struct ServerAddress {
    /// Address of a server's API, as the key api of its site file says: HOST:PORT, or unix:SOCKET;
    /// https://HOST:PORT with TLS
    #[arg(long, value_name = "ADDRESS", global = true)]
    pub server: Option<String>,

    /// File with the token for --server, which only its owner can read
    #[arg(long, value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,

    /// Folder with ca-cert.pem, the authority that --server https://… is checked against, and
    /// client-cert.pem and client-key.pem if the server asks for one
    /// [default: the authorities that this machine trusts]
    #[arg(long, value_name = "FOLDER", global = true, requires = "server")]
    pub server_tls: Option<PathBuf>,
}

/// A server by the folder in which it remembers its site, or by its address.
#[derive(Clone, Debug, Default, Args)]
pub struct ServerPlace {
    /// Folder of the server on this machine
    /// [default: $STATE_DIRECTORY, /var/lib/spindle for root, ~/.local/state/spindle for others]
    #[arg(long, value_name = "FOLDER", global = true)]
    pub state: Option<PathBuf>,

    #[command(flatten)]
    pub address: ServerAddress,
}

impl ServerAddress {
    /// The server that is named; `None` if none is.
    ///
    /// # Errors
    ///
    /// It is no address, or there is no token for it.
    pub fn connection(&self, world: &World) -> Result<Option<ServerConnection>, Refusal> {
        let Some(text) = &self.server else {
            return match self.token_file {
                Some(_) => Err(Refusal::new("a token is for a server elsewhere", "say ⟨server⟩ HOST:PORT")),
                None => Ok(None),
            };
        };
        let (text, is_encrypted) = match text.strip_prefix("https://") {
            Some(rest) => (rest.trim_end_matches('/'), true),
            None => (text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/'), false),
        };
        let address = Address::parse(text, API_PORT).map_err(|error| {
            Refusal::new(format!("⟨server⟩: {error}"), "see '[serve] api' of its site file")
        })?;
        if !address.is_local() && !is_encrypted {
            return Err(Refusal::new(
                format!("⟨server⟩ {address}: the token would pass the network in the clear"),
                "say ⟨server⟩ https://HOST:PORT if it has certificates (api_tls), or reach its port through 'ssh -L \
                 7780:127.0.0.1:7780 HOST'",
            ));
        }
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        if token.is_none() && matches!(address, Address::Tcp { .. }) {
            return Err(Refusal::new(
                format!("the server at {address} needs a token"),
                "say ⟨token-file⟩ FILE; 'spindle token create' makes one",
            ));
        }
        let tls = match (&address, is_encrypted) {
            (Address::Tcp { host, .. }, true) => Some(self.certificates(host)?),
            (Address::Unix(_), true) => {
                return Err(Refusal::new("a socket has no TLS", "say unix:SOCKET without https"));
            }
            (_, false) if self.server_tls.is_some() => {
                return Err(Refusal::new("⟨server-tls⟩ is for TLS", "say ⟨server⟩ https://HOST:PORT"));
            }
            (_, false) => None,
        };
        let connection = ServerConnection::new(world, address, token);
        Ok(Some(match tls {
            Some(tls) => connection.encrypted(tls),
            None => connection,
        }))
    }

    /// The authority that a server is checked against.
    fn certificates(&self, host: &str) -> Result<ClientTls, Refusal> {
        match &self.server_tls {
            Some(folder) => certificates::of_client_in(folder, host),
            None => ClientTls::trusting_system(host).map_err(|error| {
                Refusal::new(
                    format!("⟨server⟩ {host}: {error}"),
                    "say ⟨server-tls⟩ FOLDER, with its ca-cert.pem",
                )
            }),
        }
    }

    /// These arguments again, each behind a blank, for a command to be copied.
    pub fn repeated(&self) -> String {
        let mut text = String::new();
        if let Some(server) = &self.server {
            text += &format!(" --server {}", quoted(server));
        }
        if let Some(file) = &self.token_file {
            text += &format!(" --token-file {}", quoted(&file.display().to_string()));
        }
        if let Some(folder) = &self.server_tls {
            text += &format!(" --server-tls {}", quoted(&folder.display().to_string()));
        }
        text
    }
}

impl ServerPlace {
    /// The server that is meant.
    ///
    /// # Errors
    ///
    /// Two are named, it is no address, or there is no token for it.
    pub fn connection(&self, world: &World) -> Result<ServerConnection, Refusal> {
        match (self.address.connection(world)?, &self.state) {
            (Some(_), Some(_)) => {
                Err(Refusal::new("⟨state⟩ and ⟨server⟩ name two servers", "say one of both"))
            }
            (Some(connection), None) => Ok(connection),
            (None, state) => {
                let state = state.clone().unwrap_or_else(state_folder);
                ServerConnection::of_folder(world, &state)
            }
        }
    }
}

impl ServerConnection {
    /// The server with a state folder, over its socket.
    ///
    /// # Errors
    ///
    /// There is no such folder, or no server has made its socket there.
    pub fn of_folder(world: &World, state: &Path) -> Result<Self, Refusal> {
        let socket = socket_of(state);
        if host_files::metadata(&socket).is_err() {
            return Err(Refusal::new(
                format!("no server runs with the state folder {}", state.display()),
                "start it with 'spindle serve', or say ⟨state⟩ FOLDER or ⟨server⟩ HOST:PORT",
            ));
        }
        Ok(Self::new(world, Address::Unix(socket), None))
    }
}

/// Reads a token from a file that only its owner can read, without its line end.
fn read_token(path: &Path) -> Result<String, Refusal> {
    let shown = path.display();
    let bytes = host_files::read_at_most(path, TOKEN_BYTES_MAX)
        .map_err(|error| Refusal::new(error.to_string(), "'spindle token create' makes a token"))?;
    let mode = rustix::fs::stat(path).map_err(|error| Refusal::new(format!("{shown}: {error}"), ""))?.st_mode;
    if mode & 0o077 != 0 {
        return Err(Refusal::new(format!("{shown}: others may read this token"), "chmod 600 it"));
    }
    let token = String::from_utf8(bytes).unwrap_or_default().trim().to_owned();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token),
        false => Err(Refusal::new(format!("{shown}: it holds no token"), "'spindle token create' makes one")),
    }
}
