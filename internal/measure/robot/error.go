package robot

import "fmt"

// LoginError says that the user and the password are refused; nothing more is sent with them.
type LoginError struct{ Status int }

func (e *LoginError) Error() string {
	return fmt.Sprintf("the Robot web service refuses the user and the password (%d); put in those of the web "+
		"service user in Robot's settings; nothing more was sent, because three failed logins block this address "+
		"for ten minutes", e.Status)
}
