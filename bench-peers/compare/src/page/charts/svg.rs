//! Just enough SVG: shapes of a few classes, whose colours follow the reader's light or dark mode.

use std::fmt::Write;

/// What a shape stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The engine of interest.
    Own,
    /// A rival that counts.
    Rival,
    /// One that does not.
    Uncounted,
    /// A line to read the picture by.
    Grid,
    /// What is written small.
    Label,
    /// What is written above a panel.
    Title,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Class::Own => "own",
            Class::Rival => "rival",
            Class::Uncounted => "uncounted",
            Class::Grid => "grid",
            Class::Label => "label",
            Class::Title => "title",
        }
    }
}

/// Where a text is held.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// At its first letter.
    Start,
    /// In the middle.
    Middle,
    /// At its last letter.
    End,
}

const STYLE: &str = "\
text{font:11px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:12px}\
.own{fill:#0969da;stroke:#0969da}.rival{fill:#8c959f;stroke:#8c959f}\
.uncounted{fill:#d8dee4;stroke:#afb8c1}.grid{stroke:#d0d7de;fill:none}\
text.own,text.rival,text.uncounted{stroke:none;fill:#24292f}text.own{font-weight:600}\
text.uncounted{fill:#6e7781}\
@media(prefers-color-scheme:dark){text,text.own,text.rival{fill:#e6edf3}\
.own{fill:#58a6ff;stroke:#58a6ff}.rival{fill:#8b949e;stroke:#8b949e}\
.uncounted{fill:#30363d;stroke:#6e7681}.grid{stroke:#30363d}text.uncounted{fill:#9198a1}}";

/// A picture that is being drawn.
#[derive(Clone, Debug, Default)]
pub struct Svg {
    body: String,
}

/// A point, in pixels from the upper left corner.
pub type Point = (f64, f64);

impl Svg {
    /// A rectangle from its upper left corner.
    pub fn rectangle(&mut self, (x, y): Point, (width, height): Point, class: Class) {
        let class = class.name();
        self.add(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             class=\"{class}\"/>"
        ));
    }

    /// A straight line.
    pub fn line(&mut self, (x1, y1): Point, (x2, y2): Point, class: Class) {
        let class = class.name();
        self.add(&format!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    /// A dot.
    pub fn dot(&mut self, (x, y): Point, radius: f64, class: Class) {
        let class = class.name();
        self.add(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"/>"
        ));
    }

    /// A line of text on its base line.
    pub fn text(&mut self, (x, y): Point, anchor: Anchor, class: Class, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (class, text) = (class.name(), escape(text));
        self.add(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">\
             {text}</text>"
        ));
    }

    fn add(&mut self, shape: &str) {
        self.body.push_str(shape);
        self.body.push('\n');
    }

    /// The whole file.
    pub fn finish(self, (width, height): Point, title: &str) -> String {
        let mut file = String::new();
        let _ = write!(
            file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n\
             <style>{STYLE}</style>\n{}</svg>\n",
            escape(title),
            self.body,
        ); // Writing to a string cannot fail.
        file
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_holds_its_shapes_and_no_raw_markup_of_texts() {
        let mut svg = Svg::default();
        svg.rectangle((1.0, 2.0), (3.0, 4.0), Class::Own);
        svg.text((0.0, 0.0), Anchor::End, Class::Label, "a<b & c");
        let file = svg.finish((100.0, 50.0), "t");
        assert!(file.starts_with("<svg ") && file.ends_with("</svg>\n"));
        assert!(file.contains("class=\"own\"") && file.contains("a&lt;b &amp; c"));
        assert!(file.contains("prefers-color-scheme:dark"));
    }
}
