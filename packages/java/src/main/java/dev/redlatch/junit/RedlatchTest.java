package dev.redlatch.junit;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/** Gives the tests of a class, or one test, {@link RedlatchExtension} with these options. The method's annotation wins. */
@Documented
@ExtendWith(RedlatchExtension.class)
@Inherited
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.METHOD, ElementType.TYPE})
public @interface RedlatchTest {
    /** How many nodes there are, each a store of its own. */
    int nodes() default 1;

    /** Whether time stands still when the test begins. */
    boolean freeze() default false;
}
