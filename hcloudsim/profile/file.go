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
		return Profile{}, fmt.Errorf("parsing a profile, the file of hcloud-sim measure: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Profile{}, errors.New("the file has more than a profile: remove what follows it")
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

// Duration converts the seconds of a profile.
func Duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}

// Durations converts the seconds of a profile; the result is nil if there are none.
func Durations(seconds []float64) []time.Duration {
	var out []time.Duration
	for _, s := range seconds {
		out = append(out, Duration(s))
	}
	return out
}
