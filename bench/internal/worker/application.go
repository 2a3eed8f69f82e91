package worker

import "runtime/debug"

// Application runs a role as an application runs: on goroutines that the scheduler places, with the garbage collector on. Systems
// that wait in the kernel would pay for a goroutine that is tied to a thread.
func Application(role Role) Role {
	return func(t *Task) (result any, err error) {
		defer debug.SetGCPercent(debug.SetGCPercent(100))
		done := make(chan struct{})
		go func() {
			defer close(done)
			result, err = role(t)
		}()
		<-done
		return result, err
	}
}
