//! A server on a database of its own, for the tests of the console, and to look at it:
//!
//! ```text
//! cargo run -p lithe-server --example serve -- DIRECTORY [ADDRESS]
//! ```
//!
//! In the directory, which is made, are the database and the backups; if there is a file `tokens`
//! in it, who may do what. It says where it serves, and ends with its standard input.

use std::error::Error;
use std::io::Read as _;
use std::path::PathBuf;

use lithe_server::{Config, Server};
use lithedb::Db;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("serve DIRECTORY [ADDRESS]")?);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".into());
    let backups = directory.join("backups");
    std::fs::create_dir_all(&backups)?;
    let tokens = directory.join("tokens");

    let mut config = Config::default();
    config.http = Some(address.to_str().ok_or("the address is no text")?.parse()?);
    config.tokens = tokens.exists().then_some(tokens);
    config.backup_root = Some(backups);
    let db = Db::open(directory.join("data.lithe"))?;
    let server = Server::bind(db.clone(), config)?;
    if let Some(address) = server.http_address() {
        println!("http://{address}/console/");
    }
    let drain = server.drain();
    std::thread::spawn(move || {
        let _until_its_end = std::io::stdin().read_to_end(&mut Vec::new());
        drain.begin();
    });
    server.run()?;
    db.close()?;
    Ok(())
}
