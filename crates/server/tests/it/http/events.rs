//! Server-sent events, in as much as tests read them.

use serde_json::Value;

use super::Client;

/// Reads events until there are so many: their names, ids and data. Comments are passed over.
pub fn events(client: &mut Client, count: usize) -> Vec<(String, String, Value)> {
    let (mut text, mut found) = (String::new(), Vec::new());
    while found.len() < count {
        text.push_str(&String::from_utf8(client.chunk().unwrap().unwrap()).unwrap());
        while let Some(end) = text.find("\n\n") {
            let event: String = text.drain(..end + 2).collect();
            let field = |name: &str| {
                let line = event.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_default().to_owned()
            };
            if !field("event: ").is_empty() {
                let data = serde_json::from_str(&field("data: ")).unwrap();
                found.push((field("event: "), field("id: "), data));
            }
        }
    }
    found
}
