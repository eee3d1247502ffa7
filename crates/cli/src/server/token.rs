//! `spindle token`: tokens for programs that call the API.

use super::arguments::{TokenArguments, TokenVerb};
use crate::{console::Console, exit_status::ExitStatus};
use control::web::{
    CallerRole, MadeToken, NewToken, TokenRow,
    client::{Method, in_uri},
};
use report::Refusal;
use serde::Serialize;
use world::{
    World,
    real::{self, RealOptions},
};

const PATH: &str = "/v1/tokens";

/// The answer to a deletion as JSON.
#[derive(Serialize)]
struct DeletedToken<'a> {
    name: &'a str,
    done: &'static str,
}

/// Runs the verb to its end.
pub fn token(arguments: &TokenArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, false);
    real::run(0, RealOptions::default(), async |world: World| {
        let server = arguments.place.connection(&world)?;
        match &arguments.verb {
            TokenVerb::Create { name, role, pools, days } => {
                let new =
                    NewToken { name: name.clone(), role: role.role(), pools: pools.clone(), days: *days };
                // Without a key: the server would keep its answer, and the token in it.
                let made: MadeToken = server.post(PATH, &new).await?.parsed()?;
                let at = server.address();
                console.say_progress(&format!(
                    "{}; for the server at {at}, shown now and never again",
                    text_of(&made.row)
                ));
                match arguments.json {
                    true => console.json_of(&made)?,
                    false => console.say_always(&made.token),
                }
            }
            TokenVerb::List => {
                let rows: Vec<TokenRow> = server.get(PATH).await?;
                if arguments.json {
                    console.json_of(&rows)?;
                }
                rows.iter().for_each(|row| console.say(&text_of(row)));
                if rows.is_empty() {
                    console.say("no tokens");
                }
            }
            TokenVerb::Delete { name } => {
                let path = format!("{PATH}/{}", in_uri(name));
                server.change(Method::DELETE, &path, None::<&()>).await?.checked()?;
                if arguments.json {
                    console.json_of(&DeletedToken { name, done: "deleted" })?;
                }
                console.say(&format!("{name}: deleted; programs that use it are refused from now on"));
            }
        }
        console.finish(ExitStatus::Pass)
    })
}

fn text_of(TokenRow { name, role, pools, made_at, expires_at }: &TokenRow) -> String {
    let role = match role {
        CallerRole::Read => "read",
        CallerRole::Operate => "operate",
        CallerRole::Admin => "admin",
    };
    let pools = match &pools[..] {
        [] => "all pools".to_owned(),
        [pool] => format!("pool {pool}"),
        many => format!("pools {}", many.join(", ")),
    };
    let until = expires_at.as_ref().map_or_else(String::new, |end| format!(", valid until {end}"));
    format!("{name}: {role}, {pools}, made {made_at}{until}")
}
