package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Read reads a profile, strictly: an unknown field, or a value that can't have been measured, is an
// error that names the field, the value, and what it may be. All of them are reported at once.
func Read(r io.Reader) (Profile, error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return Profile{}, fmt.Errorf("reading a profile: %w", err)
	}
	var p Profile
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return Profile{}, explain(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Profile{}, errors.New("there is something behind the profile: a file holds one, and nothing else")
	}
	if err := p.check(); err != nil {
		return Profile{}, err
	}
	return p.canonical(), nil
}

// Write writes a profile as Read reads it: indented, fields and commands and times always in the
// same order. It refuses what Read would.
func Write(w io.Writer, p Profile) error {
	if err := p.check(); err != nil {
		return err
	}
	content, err := json.MarshalIndent(p.canonical(), "", "  ")
	if err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	_, err = w.Write(append(content, '\n'))
	return err
}

// explain turns a decoder's error into one that says what to do.
func explain(err error) error {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("the file is a JSON %s: a profile is an object, as hcloud-sim measure writes it", wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: is a JSON %s, must be %s", wrong.Field, wrong.Value, named(wrong.Type.Kind().String()))
	case errors.As(err, &syntax):
		return fmt.Errorf("no JSON at byte %d: %w; a profile is the file that hcloud-sim measure writes", syntax.Offset, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the file ends too early: a profile is the whole file that hcloud-sim measure writes")
	}
	return fmt.Errorf("%w; remove the field, or use the version of the program that wrote it", err)
}

// named is what JSON calls a type of Go's.
func named(kind string) string {
	switch kind {
	case "bool":
		return "true or false"
	case "int":
		return "an integer"
	case "float64":
		return "a number"
	case "slice":
		return "a list"
	case "map", "struct":
		return "an object"
	}
	return "a string"
}

// Duration is a time of a profile.
func Duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// Durations are times of a profile; nil if there are none.
func Durations(seconds []float64) []time.Duration {
	var out []time.Duration
	for _, s := range seconds {
		out = append(out, Duration(s))
	}
	return out
}
