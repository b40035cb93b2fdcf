package secret_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/secret"
)

type password struct{ secret.Text }

func TestOnlyRevealReturnsTheSecret(t *testing.T) {
	const text = "s3cret"
	p := password{secret.New(text)}
	holder := struct {
		Public  password
		private password
		pointer *password
		list    []secret.Text
	}{p, p, &p, []secret.Text{p.Text}}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%10.3s"} {
		fmt.Fprintf(&out, verb+verb+verb+verb, p, &p, holder, &holder)
	}
	encoded, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"Public":"[redacted]"}`; string(encoded) != want {
		t.Errorf("encoded as %s, want %s", encoded, want)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "value", p, "holder", holder)
	for _, shown := range []string{text, fmt.Sprintf("%x", text), fmt.Sprintf("%X", text)} {
		if strings.Contains(out.String(), shown) {
			t.Errorf("the secret shows in %s", out.String())
		}
	}
	if p.Reveal() != text || (secret.Text{}).Reveal() != "" {
		t.Error("Reveal doesn't tell it")
	}
}
