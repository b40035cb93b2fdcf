package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

const programLong = `Write the program that a dedicated server of yours is measured with, and the key that it
is asked with. Dedicated servers can't be thrown away, so you start it there yourself,
as root, and it ends when you press Ctrl-C, at the end of the measuring, or by itself
after --lifetime. If its port is taken there, --port N moves it, and --dedicated is
ADDRESS:N. It needs Python 3.9 or later and "ip", and nothing else. What it
changes on the server (an address and a route on the interface in the vSwitch, answers
to ARP there) it changes back when it ends.

Whoever has one of the files may ask the program, which runs as root: keep both to
yourself, and remove them afterwards. They are made anew each time, for one server.

    hcloud-sim measure program --out program.py
    scp program.py root@203.0.113.7:
    ssh -t root@203.0.113.7 python3 program.py
    hcloud-sim measure --dedicated 203.0.113.7 --dedicated-key program.py.key \
      --dedicated-interface enp0s31f6.4000 --vswitch 4321`

// programming are the flags of measure program.
type programming struct {
	out, key string
	lifetime time.Duration
}

func programCommand(t terminal) *cobra.Command {
	p := &programming{}
	cmd := &cobra.Command{
		Use: "program", Short: "Write the program that a dedicated server of yours is measured with", Long: programLong, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			err := p.check()
			if err == nil {
				err = p.write()
			}
			if err == nil {
				_, err = fmt.Fprint(t.out, p.written())
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.out, "out", "", "file for the program; it must not exist")
	f.StringVar(&p.key, "key", "", "file for the key, which --dedicated-key takes; it must not exist; empty: the program's name with .key behind it")
	f.DurationVar(&p.lifetime, "lifetime", inside.Lifetime, "how long the program runs if nobody ends it before")
	return cmd
}

// check finds every mistake in the flags.
func (p *programming) check() error {
	var errs []error
	if p.out == "" {
		errs = append(errs, errors.New("--out is empty: name the file for the program"))
	}
	if p.key == "" {
		p.key = p.out + ".key"
	}
	if p.key == p.out {
		errs = append(errs, errors.New("--key names the file of --out: name another one"))
	}
	if p.lifetime < time.Minute || p.lifetime > 24*time.Hour {
		errs = append(errs, fmt.Errorf("--lifetime %s: it must be between 1m and 24h", p.lifetime))
	}
	return errors.Join(errs...)
}

// write makes both files, or none.
func (p *programming) write() error {
	credentials, err := inside.NewCredentials("dedicated")
	if err != nil {
		return err
	}
	if err := writeSecret("out", p.out, []byte(inside.UserData(credentials, p.lifetime))); err != nil {
		return err
	}
	if err := writeSecret("key", p.key, credentials.ClientFile()); err != nil {
		return errors.Join(err, os.Remove(p.out))
	}
	return nil
}

// writeSecret makes a file that nobody else may read. One that is there stays as it is.
func writeSecret(flag, name string, content []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("--%s %s: the file exists; remove it or name another one", flag, name)
	}
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(fmt.Errorf("--%s: %w", flag, err), os.Remove(name))
	}
	return nil
}

func (p *programming) written() string {
	return fmt.Sprintf(`The program is %s, and its key %s. Nobody else may get them.
Copy the program to the server and start it there as root: python3 %s
It is asked at TCP port %d, which a firewall must let pass from here, and ends after %.0f minutes at the latest.
Then: hcloud-sim measure --dedicated ADDRESS --dedicated-key %s --dedicated-interface NAME --vswitch ID
`, p.out, p.key, filepath.Base(p.out), inside.Port, p.lifetime.Minutes(), p.key)
}
