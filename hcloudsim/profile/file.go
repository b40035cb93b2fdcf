package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Read parses a profile strictly. It returns an error for every unknown field and for every value
// that can't be a measurement, with the field, the value and the allowed values.
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

// Write writes a profile for Read: indented, in a stable order of fields, commands and times. It
// returns an error for a profile that Read would reject.
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

// explain returns a decoder's error with the required change of the file.
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

// Duration converts the seconds of a profile.
func Duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// Durations converts the seconds of a profile; the result is nil if there are none.
func Durations(seconds []float64) []time.Duration {
	var out []time.Duration
	for _, s := range seconds {
		out = append(out, Duration(s))
	}
	return out
}
