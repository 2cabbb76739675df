package guides_test

import (
	"bytes"
	"fmt"
	"html"
	"strings"
)

// A canvas collects the elements of a picture. Its unit is a tenth of a pixel, so that all coordinates are whole
// numbers, and the same on every machine.
type canvas struct {
	title, description string
	width              int
	sizes              fontSizes
	back, front        bytes.Buffer
}

const (
	px     = 10
	margin = 12 * px
)

func (c *canvas) text(x, y int, class, format string, args ...any) {
	fmt.Fprintf(&c.front, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, classes(class), html.EscapeString(fmt.Sprintf(format, args...)))
}

func classes(class string) string {
	if class == "" {
		return ""
	}
	return fmt.Sprintf(" class=%q", class)
}

func (c *canvas) box(class string, x, y, width, height int) {
	fmt.Fprintf(&c.front, "<rect class=%q x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"50\"/>\n", class, x, y, width, height)
}

func path(to *bytes.Buffer, class, format string, args ...any) {
	fmt.Fprintf(to, "<path class=\"%s\" d=\"%s\"/>\n", class, fmt.Sprintf(format, args...))
}

// arrow draws a horizontal or vertical line with a head.
func (c *canvas) arrow(class string, x, y, toX, toY int) {
	path(&c.front, class, "M%d,%dL%d,%d", x, y, toX, toY)
	switch {
	case toX > x:
		path(&c.front, class+" head", "M%d,%dl70,40l-70,40", toX-70, toY-40)
	case toX < x:
		path(&c.front, class+" head", "M%d,%dl-70,40l70,40", toX+70, toY-40)
	default:
		path(&c.front, class+" head", "M%d,%dl40,70l40-70", toX-40, toY-70)
	}
}

// cross marks the end of something.
func (c *canvas) cross(x, y int) { path(&c.front, "no", "M%d,%dl100,100m0-100l-100,100", x-50, y-50) }

// wide estimates the width of a text.
func wide(text string, size int) int { return len([]rune(text)) * size * 52 / 100 }

// wrap divides a text into lines of at most this width.
func wrap(text string, size, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && wide(line+" "+word, size) > width {
			lines = append(lines, line)
			line = word
			continue
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// top draws the title, whose bold letters are wider, and a note below it. It returns where the picture may begin.
func (c *canvas) top(note string) (y int) {
	y = 6 * px
	for _, line := range wrap(c.title, c.sizes.title*6/5, c.width-2*margin) {
		y += c.sizes.title * 13 / 10
		c.text(margin, y, "title", "%s", line)
	}
	if note == "" {
		return y + 8*px
	}
	y += 3 * px
	for _, line := range wrap(note, c.sizes.note, c.width-2*margin) {
		y += c.sizes.note * 14 / 10
		c.text(margin, y, "note", "%s", line)
	}
	return y + 8*px
}

// file returns the picture as SVG. Its background is that of the page.
func (c *canvas) file(height int) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n",
		c.width/px, height/px, c.width, height)
	fmt.Fprintf(&out, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n", html.EscapeString(c.title), html.EscapeString(c.description))
	fmt.Fprintf(&out, "<style>%s</style>\n", style(c.sizes))
	out.Write(c.back.Bytes())
	out.Write(c.front.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}
