package doctor

import (
	"fmt"
	"strings"
	"time"
)

// shown is how many of a kind a finding names.
const shown = 3

// few names the first of many.
func few(all []string) string {
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}

// long is a duration as people say it.
func long(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

// about is a finding about an object, with the check's severity and remedy.
func about(object, format string, values ...any) Finding {
	return Finding{Object: object, What: fmt.Sprintf(format, values...)}
}
