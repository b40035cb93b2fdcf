package measure

import (
	"net/netip"
	"regexp"
	"strings"
)

// Redaction takes out of texts what a bug report must not show: secrets, public addresses, IDs.
// Errors of the API name all of these.
type Redaction struct {
	// Roles are what known addresses are, such as "server 1".
	Roles map[netip.Addr]string
	// Secrets are taken out wherever they stand. A shorter one than shortestSecret is no provider's,
	// and would be found in words.
	Secrets []string
}

// shortestSecret is in bytes.
const shortestSecret = 6

var (
	// addressLike is what may be an address, with a prefix length or a port or without.
	addressLike = regexp.MustCompile(`[0-9a-fA-F:.]*[0-9a-fA-F][:.][0-9a-fA-F:.]*`)
	// idAfterKind is an ID behind the name of what has it. Fewer digits are a count.
	idAfterKind = regexp.MustCompile(`(?i)\b(server|network|load[ _]balancer|action|image|primary[ _]ip|` +
		`floating[ _]ip|vswitch|id|certificate)s?([ /=:#"']+)([0-9]{4,})\b`)
	// longNumber is nothing that is measured here.
	longNumber = regexp.MustCompile(`\b[0-9]{6,}\b`)
)

// Clean is a text without them.
func (r Redaction) Clean(text string) string {
	for _, secret := range r.Secrets {
		if len(secret) >= shortestSecret {
			text = strings.ReplaceAll(text, secret, "[redacted]")
		}
	}
	var b strings.Builder
	done := 0
	for _, at := range addressLike.FindAllStringIndex(text, -1) {
		if shown, is := r.address(text[at[0]:at[1]]); is {
			b.WriteString(withoutIDs(text[done:at[0]]) + shown)
			done = at[1]
		}
	}
	return b.String() + withoutIDs(text[done:])
}

func withoutIDs(text string) string {
	text = idAfterKind.ReplaceAllString(text, "$1$2[id]")
	return longNumber.ReplaceAllString(text, "[id]")
}

// address is what stands for an address, if the text is one, with a port or what ends a sentence
// or without.
func (r Redaction) address(text string) (shown string, is bool) {
	trimmed := strings.TrimRight(text, ".:")
	if strings.HasSuffix(text, "::") {
		trimmed = text
	}
	rest := text[len(trimmed):]
	ip, err := netip.ParseAddr(trimmed)
	if err != nil {
		at, err := netip.ParseAddrPort(trimmed)
		if err != nil {
			return "", false
		}
		ip, rest = at.Addr(), trimmed[strings.LastIndex(trimmed, ":"):]+rest
	}
	ip = ip.Unmap()
	switch role, known := r.Roles[ip]; {
	case known:
		return "[" + role + "]" + rest, true
	case ip.Is4() && (ip.IsPrivate() || ip.IsLoopback()), ip.IsUnspecified():
		return text, true
	}
	return "[address]" + rest, true
}
