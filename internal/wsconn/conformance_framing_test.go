package wsconn_test

import (
	"strings"
	"testing"
)

// repeated returns n bytes of text that do not repeat with a power of two.
func repeated(n int) string { return strings.Repeat("0123456789*", n/11+1)[:n] }

// between returns lines in which frames that close the connection with 1002 are alone, between messages, behind a ping and
// inside a message.
func between(frames ...string) string {
	return each(`%s => 1002`, frames...) + each(`T"a" %s T"b" => "a" 1002`, frames...) +
		each(`T"a" P"p" %s P"q" => "a" O"p" 1002`, frames...) + each(`t"a" %s C"b" => 1002`, frames...)
}

// TestConformance_Framing is group 1, and the chopped message of group 10.
func TestConformance_Framing(t *testing.T) {
	t.Parallel()
	lengths := []int{0, 1, 2, 125, 126, 127, 128, 255, 256, 65535, 65536, 65537}
	runWireCases(t, len(deliveries), wireCases("", each(`T*%[1]d => *%[1]d`, lengths...), each(`B*%[1]d => B*%[1]d`, lengths...),
		each(`T"a" T*%[1]d B"b" => "a" *%[1]d B"b"`, lengths...)))
}

// TestConformance_Masking is RFC 6455, section 5.1: a server closes on a frame without a mask.
func TestConformance_Masking(t *testing.T) {
	t.Parallel()
	unmasked := between(`!T"x"`, `!T`, `!B"x"`, `!t"x"`, `!T*200`, `!T*65536`, `!P`, `!P"x"`, `!O`, `!X1000`, `!X`)
	runWireCases(t, len(deliveries), wireCases("", unmasked, `
		t"a" C"b" !T"x" T"c" => "ab" 1002
		t"a" !C"x" => 1002`))
}

// TestConformance_Lengths is RFC 6455, section 5.2: a length has the minimal number of bytes,
// and the most significant bit of 64 is 0.
func TestConformance_Lengths(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, before := range []string{"<81", "<82", `t"a" <80`, "<89", "<8a", "<88"} {
		for length, code := range map[string]string{
			"fe0000": "1002", "fe0001": "1002", "fe007d": "1002", // 2 bytes for 0, 1 and 125
			"ff0000000000000000": "1002", "ff000000000000007d": "1002", "ff000000000000007e": "1002", "ff000000000000ffff": "1002",
			"ff8000000000000000": "1002|1009", "ff8000000000000005": "1002|1009", "ffffffffffffffffff": "1002|1009",
		} {
			lines = append(lines, before+length+"00000000"+strings.Repeat("61", 125)+"> => "+code)
		}
	}
	runWireCases(t, 1, wireCases("", lines...))
}

// TestConformance_ReservedBits is group 3. No extension is negotiated.
func TestConformance_ReservedBits(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, bits := range []string{"^10", "^20", "^30", "^40", "^50", "^60", "^70"} {
		lines = append(lines, between("T"+bits+`"x"`, "T"+bits, "B"+bits+`"x"`, "t"+bits+`"x"`, "P"+bits+`"x"`, "O"+bits+`"x"`,
			"X"+bits+"1000", "X"+bits, "R3"+bits), `t"a" C`+bits+`"b" => 1002`)
	}
	runWireCases(t, 1, wireCases("", lines...))
}

// TestConformance_Opcodes is group 4.
func TestConformance_Opcodes(t *testing.T) {
	t.Parallel()
	var lines []string
	for opcode := range strings.SplitSeq("34567bcdef", "") {
		lines = append(lines, between("R"+opcode, "R"+opcode+"*1", "R"+opcode+"*125", "R"+opcode+"*126", "R"+opcode+"*300"),
			"r"+opcode+`"a" C"b" => 1002`)
	}
	runWireCases(t, 1, wireCases("", lines...))
}

// TestConformance_Fragments is group 5.
func TestConformance_Fragments(t *testing.T) {
	t.Parallel()
	runWireCases(t, len(deliveries), wireCases("", listed(t, "fragments")))
}

// TestConformance_BigMessages is group 9, up to the maximum of the server.
func TestConformance_BigMessages(t *testing.T) {
	t.Parallel()
	runWireCases(t, 1, wireCases("", listed(t, "big messages"),
		each(`T/%d*1048576 => *1048576`, 64, 1024, 16<<10, 256<<10)))
}
