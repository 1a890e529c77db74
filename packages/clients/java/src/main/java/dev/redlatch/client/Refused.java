package dev.redlatch.client;

/** The server refuses the request. The text is the server's; the error of the library is the cause. */
public class Refused extends LockException {
    private static final long serialVersionUID = 1L;

    Refused(String text, Throwable cause) {
        super(text, cause);
    }
}
