//! Runs the program as a user would: files, pipes, exit codes, damage.

#![cfg(test)]

mod backups;
mod checkpoints;
mod comparing;
mod damage;
mod dumping;
mod encrypting;
mod guide;
mod indexes;
mod inspecting;
mod loading;
mod messages;
mod past;
mod reading;
mod recording;
mod serving;
mod sessions;
mod settings;
mod shell;
mod space;
mod terminal;
mod torturing;
mod typing;
mod upgrading;
mod writing;
