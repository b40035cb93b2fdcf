package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// output is a file that is written at the end. Whether it can be written is found out at the
// start, so that nothing is spent for nothing. Until then what is there stays as it is.
type output struct {
	name string // as it was given
	// path is that of a regular file, without symbolic links; empty: it is no regular file.
	path string
	file *os.File  // that exists, or nil
	to   io.Writer // of what is no regular file
	// before is what a regular file holds at the start.
	before []byte
}

// openOutput prepares a file; without a name there is none.
func openOutput(w process, flag, name string) (*output, error) {
	if name == "" {
		return nil, nil
	}
	o := &output{name: name}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = o.try()
	case err != nil:
	case info.IsDir():
		return nil, fmt.Errorf("--%s %s is a folder: name a file in it", flag, name)
	case info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice:
		return nil, fmt.Errorf("--%s %s is a disk: name a file", flag, name)
	case w.stream(info) != nil:
		o.to = w.stream(info)
	case info.Mode().IsRegular():
		err = o.open()
	default:
		// A pipe that nobody reads would let it wait for ever.
		o.file, err = os.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		o.to = o.file
		if errors.Is(err, syscall.ENXIO) {
			return nil, fmt.Errorf("--%s %s: nobody reads there: start that first, or name a file", flag, name)
		}
	}
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, fmt.Errorf("--%s %s can't be written: %w: name another file", flag, name, err)
	}
	return o, nil
}

// try finds out whether a file that isn't there can be made.
func (o *output) try() error {
	file, err := os.OpenFile(o.name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	// A symbolic link that led nowhere leads to the file now.
	o.path, err = filepath.EvalSymlinks(o.name)
	if err == nil {
		err = os.Remove(o.path)
	}
	return errors.Join(err, file.Close())
}

// open opens a file that is there.
func (o *output) open() (err error) {
	if o.path, err = filepath.EvalSymlinks(o.name); err != nil {
		return err
	}
	if o.before, err = os.ReadFile(o.path); errors.Is(err, fs.ErrPermission) {
		err = nil // it may be one that can be written alone
	}
	if err == nil {
		o.file, err = os.OpenFile(o.path, os.O_WRONLY, 0)
	}
	return err
}

// stream is the standard output or error, if that is the file; else nil. As /dev/stdout it is
// neither opened once more nor replaced.
func (w process) stream(info fs.FileInfo) io.Writer {
	for _, stream := range []io.Writer{w.stdout, w.stderr} {
		file, is := stream.(*os.File)
		if !is {
			continue
		}
		if own, err := file.Stat(); err == nil && os.SameFile(info, own) {
			return file
		}
	}
	return nil
}

// isFile reports whether the output is a regular file, whose content it gets as a whole.
func (o *output) isFile() bool { return o != nil && o.path != "" }

// write puts the content there: whole, or else what was there before. A regular file stays the same
// one, with its owner, mode and links. It can be written again, and then has what came last.
func (o *output) write(content []byte) error {
	if o == nil {
		return nil
	}
	var err error
	switch {
	case !o.isFile():
		_, err = o.to.Write(content)
	case o.file == nil:
		if err = os.WriteFile(o.path, content, 0o644); err != nil {
			_ = os.Remove(o.path)
		}
	default:
		if err = o.replace(content); err != nil {
			_ = o.replace(o.before)
		}
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", o.name, err)
	}
	return nil
}

// replace gives a file that is there another content.
func (o *output) replace(content []byte) error {
	_, err := o.file.WriteAt(content, 0)
	if err == nil {
		err = o.file.Truncate(int64(len(content)))
	}
	return err
}

// close ends it. What was not written stays as it was.
func (o *output) close() {
	if o != nil && o.file != nil {
		_ = o.file.Close()
	}
}

// files are what a run writes.
type files struct{ profile, report *output }

// files prepares them, and refuses one file for both.
func (m *measuring) files(w process) (f files, err error) {
	if f.profile, err = openOutput(w, "profile", m.profile); err != nil {
		return f, err
	}
	f.report, err = openOutput(w, "report", m.report)
	if err == nil && f.profile.isFile() && f.report.isFile() && f.profile.same(f.report) {
		err = fmt.Errorf("--profile %s and --report %s are the same file: name another one for one of them", m.profile, m.report)
	}
	if err != nil {
		f.close()
	}
	return f, err
}

// regular are those that can be written more than once.
func (f files) regular() (out files) {
	if f.profile.isFile() {
		out.profile = f.profile
	}
	if f.report.isFile() {
		out.report = f.report
	}
	return out
}

// same reports whether both are the same regular file.
func (o *output) same(other *output) bool {
	if o.path == other.path {
		return true
	}
	a, errA := os.Stat(o.path)
	b, errB := os.Stat(other.path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

func (f files) close() {
	f.profile.close()
	f.report.close()
}

// before is the profile that is there already. What is no regular file holds none.
func (m *measuring) before(w process, f files) (profile.Profile, error) {
	if !f.profile.isFile() {
		return profile.Profile{}, nil
	}
	p, err := readProfile(w, m.profile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return profile.Profile{}, nil
	case err != nil:
		return p, err
	case p.Location != "" && p.Location != m.location:
		return p, fmt.Errorf("--profile %s was measured in location %s, and this is %s: name another file, or --location %s", m.profile, p.Location, m.location, p.Location)
	}
	return p, nil
}

// readProfile reads a file that a person named.
func readProfile(w process, name string) (profile.Profile, error) {
	content, err := w.readFile(name)
	if err != nil {
		return profile.Profile{}, fmt.Errorf("--profile: %w", err)
	}
	p, err := profile.Read(bytes.NewReader(content))
	if err != nil {
		return p, fmt.Errorf("--profile %s: %w", name, err)
	}
	return p, nil
}

// profileText is a profile as a file.
func profileText(p profile.Profile) ([]byte, error) {
	var b bytes.Buffer
	err := profile.Write(&b, p)
	return b.Bytes(), err
}
