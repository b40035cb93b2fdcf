package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	yaml3 "go.yaml.in/yaml/v3"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/yaml"
)

const tokenText = "S3cr3tS3cr3tS3cr3tS3cr3tS3cr3t"

func testToken(t *testing.T) Token {
	t.Helper()
	token, err := NewToken(tokenText)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// holder keeps a token where fmt can't call its methods.
type holder struct {
	Public  Token
	private Token
	nested  map[string]*Token
}

func TestTokenNeverPrints(t *testing.T) {
	token := testToken(t)
	inside := holder{Public: token, private: token, nested: map[string]*Token{"a": &token}}
	source := Secret{field: "HCLOUD_TOKEN", Fixed: token}
	var printed []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "% x", "%t", "%U", "%p", "%T", "%10.3s"} {
		if got := fmt.Sprintf(verb, token); verb != "%T" && verb != "%p" && got != redacted {
			t.Errorf("Sprintf(%q) = %q, want %q", verb, got, redacted)
		}
		for _, value := range []any{
			token, &token, inside, &inside, []Token{token}, source, &source, Config{Token: source},
		} {
			printed = append(printed, fmt.Sprintf(verb, value))
		}
	}
	for _, encode := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal, yaml3.Marshal} {
		text, err := encode(map[string]any{"token": token, "pointer": &token, "source": source})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), redacted) {
			t.Errorf("encoded as %s, want %s in it", text, redacted)
		}
		printed = append(printed, string(text))
	}
	printed = append(printed, logged(token, inside, source)...)
	for _, text := range printed {
		if strings.Contains(text, tokenText) || strings.Contains(text, fmt.Sprintf("%x", tokenText)) {
			t.Errorf("the token shows in %q", text)
		}
	}
	if token.Reveal() != tokenText {
		t.Error("Reveal does not return the secret")
	}
}

func logged(values ...any) []string {
	var text, jsonText, klogText bytes.Buffer
	output := textlogger.NewConfig(textlogger.Output(&klogText))
	klogger := klog.New(textlogger.NewLogger(output).GetSink())
	for _, value := range values {
		slog.New(slog.NewTextHandler(&text, nil)).Info("m", "value", value)
		slog.New(slog.NewJSONHandler(&jsonText, nil)).Info("m", "value", value)
		klogger.Info("m", "value", value)
	}
	return []string{text.String(), jsonText.String(), klogText.String()}
}

func TestNewToken(t *testing.T) {
	for _, good := range []string{tokenText, tokenText + "\n", tokenText + "\r\n", " " + tokenText, tokenText + " ", tokenText + "\n\n", tokenText + "\t"} {
		token, err := NewToken(good)
		if err != nil || token.Reveal() != tokenText {
			t.Errorf("NewToken(%q) = %q, %v; want the bare secret", good, token.Reveal(), err)
		}
	}
	for _, bad := range []string{"", "\n", "\r\n", " \n\n", tokenText + " " + tokenText, "a\x00b", tokenText + "é", "a\nb"} {
		token, err := NewToken(bad)
		if err == nil || token.Reveal() != "" {
			t.Errorf("NewToken(%q) accepted it", bad)
			continue
		}
		if strings.Contains(err.Error(), tokenText) {
			t.Errorf("the error repeats the token: %v", err)
		}
	}
}

func TestTokenSourceReadsTheFileAgain(t *testing.T) {
	files := fakeFiles{"/token": "first\n"}
	config, _, err := load(t, setup{env: vars{"HCLOUD_TOKEN_FILE": "/token"}, files: files})
	if err != nil {
		t.Fatal(err)
	}
	if config.Token.File != "/token" {
		t.Errorf("File = %q, want /token", config.Token.File)
	}
	for _, want := range []string{"first", "second"} {
		files["/token"] = want + "\n"
		token, err := config.Token.Read()
		if err != nil || token.Reveal() != want {
			t.Errorf("Read() = %q, %v; want %q", token.Reveal(), err, want)
		}
	}
	files["/token"] = tokenText + " " + tokenText
	if _, err := config.Token.Read(); err == nil || strings.Contains(err.Error(), tokenText) {
		t.Errorf("Read() of a damaged file: %v; want an error without the token", err)
	}
	delete(files, "/token")
	var problem *Error
	if _, err := config.Token.Read(); !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &problem) || problem.Field != "HCLOUD_TOKEN_FILE" {
		t.Errorf("Read() of a missing file: %v; want ErrNotExist about HCLOUD_TOKEN_FILE", err)
	}
}

func TestTokenPrecedence(t *testing.T) {
	all := vars{"HCLOUD_TOKEN": "direct", "HCLOUD_TOKEN_FILE": "/env"}
	files := fakeFiles{"/env": "from-env-file", "/file": "from-file"}
	for name, c := range map[string]struct {
		file    string
		env     vars
		want    string
		warning string
	}{
		"key over both variables":        {"tokenFile: /file", all, "from-file", "HCLOUD_TOKEN"},
		"variable over file of variable": {"", all, "direct", "HCLOUD_TOKEN_FILE"},
		"file of variable":               {"", vars{"HCLOUD_TOKEN_FILE": "/env"}, "from-env-file", ""},
		"key over file of variable":      {"tokenFile: /file", vars{"HCLOUD_TOKEN_FILE": "/env"}, "from-file", ""},
		"variable":                       {"", vars{"HCLOUD_TOKEN": "direct\n"}, "direct", ""},
	} {
		t.Run(name, func(t *testing.T) {
			config, warnings, err := load(t, setup{file: c.file, env: c.env, files: files})
			if err != nil {
				t.Fatal(err)
			}
			token, err := config.Token.Read()
			if err != nil || token.Reveal() != c.want {
				t.Errorf("token %q, %v; want %q", token.Reveal(), err, c.want)
			}
			if got := fields(warnings); got != c.warning {
				t.Errorf("warnings about %q, want %q", got, c.warning)
			}
		})
	}
}
